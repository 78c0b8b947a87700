"""The formats of the published changelog, and the protocol of the publisher."""
