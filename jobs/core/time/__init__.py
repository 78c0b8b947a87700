"""Watermarks, and the work that becomes due as time passes."""
