"""Decode the bytes of a source into signed rows."""
