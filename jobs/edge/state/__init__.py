"""The hot state: a bucket's groups, multisets and timers, in arrays or LMDB."""
