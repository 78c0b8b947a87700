"""The Spark job: pure rules in core, neighbours in edge, the way of an epoch in pipeline."""
