"""Job specs from the SQL file of a Flink job."""
