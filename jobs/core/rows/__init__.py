"""Prepare rows for the fold: consolidation, last images, times, windows."""
