"""The table of a job, as every reader sees it: a version, its files, its epochs."""
