"""Responses about results and changes, independent of HTTP."""
