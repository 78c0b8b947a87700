"""Everything that touches the outside: Kafka, Spark, the table, disks and processes."""
