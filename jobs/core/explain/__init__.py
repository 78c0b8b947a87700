"""Explain why a group has its values."""
