"""Limits on what clients may use: connections, streams, requests in progress."""
