"""Commands that only a service can answer."""
