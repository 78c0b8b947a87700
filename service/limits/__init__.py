"""How much of the service a client may use: connections, streams, requests at work."""
