"""The Delta table of a job: write, read, merge and keep epochs."""
