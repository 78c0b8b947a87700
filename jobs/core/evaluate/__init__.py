"""Evaluate plan expressions in plain Python."""
