"""Spark: the session, and the types of columns."""
