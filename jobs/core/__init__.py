"""The rules, each once: pure Python without Spark, Kafka, files, clocks or randomness."""
