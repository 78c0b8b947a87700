"""Benchmarks: retally and its peers on the same topics in one run, with their results checked."""
