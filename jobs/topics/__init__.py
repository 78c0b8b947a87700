"""Topics, offsets and newest messages of brokers, for the service and the commands."""
