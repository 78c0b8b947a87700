"""Kafka: topics, offsets, ranges of records, single records."""
