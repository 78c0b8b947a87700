"""Failures: one catalogue of codes, for jobs that end and requests that are refused."""
