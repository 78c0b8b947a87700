"""Fold plain queries over arrays, with compiled kernels; the same results as jobs.core.fold."""
