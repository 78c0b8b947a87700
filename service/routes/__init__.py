"""The REST routes, and what a request passes before them."""
