"""Answers about results and changes, before they become HTTP."""
