"""Check a job's table against its source, and explain its values."""
