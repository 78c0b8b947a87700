"""Values: read, written, rounded and ordered."""
