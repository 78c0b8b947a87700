"""Benchmarks: retally and its peers on the same topic, in the same run, against the truth."""
