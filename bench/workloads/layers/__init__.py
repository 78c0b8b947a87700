"""Workloads of one layer alone, without Kafka and Spark."""
