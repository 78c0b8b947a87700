"""The hot state: a bucket's groups, multisets and timers in LMDB, beside the table."""
