"""Explanations of values and failures for pages."""
