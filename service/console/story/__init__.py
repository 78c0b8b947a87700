"""The explanation of values and failures in sentences."""
