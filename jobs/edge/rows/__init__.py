"""Rows as Arrow columns, between Kafka, Spark, the fold and the table."""
