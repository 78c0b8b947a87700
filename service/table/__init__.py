"""A job's Delta table as the service reads it."""
