"""Directories of files as sources: their files in order, and the offset of each line."""
