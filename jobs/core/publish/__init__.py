"""The formats of the published changelog, and the protocol of its publisher."""
