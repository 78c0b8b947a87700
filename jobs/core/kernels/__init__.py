"""Loops over arrays, compiled by numba. Plain Python does the same where they cannot run."""
