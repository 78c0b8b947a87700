"""What a request passes before its route."""
