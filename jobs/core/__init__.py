"""The rules, without Spark, Kafka, files, clocks or randomness."""
