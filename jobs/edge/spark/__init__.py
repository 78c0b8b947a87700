"""Spark: the session, and plan expressions as Columns."""
