"""The engine: pure rules in core, Kafka, Spark and Delta in edge, the dataflow in running."""
