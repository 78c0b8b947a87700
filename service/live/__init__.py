"""The newest epochs in memory: readers, the results index, recent changes."""
