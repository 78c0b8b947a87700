"""Run a job without Kafka: replay steps, and emit the watermarks of steps."""
