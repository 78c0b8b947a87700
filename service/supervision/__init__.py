"""The jobs of the service: registered, started, watched, operated on."""
