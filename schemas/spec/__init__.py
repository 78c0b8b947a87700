"""The job spec: its keys, their values, and Kafka connections."""
