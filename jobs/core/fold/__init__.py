"""Fold changes into groups: deltas and old groups give new groups and the changelog."""
