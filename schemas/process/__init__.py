"""What this process uses of its machine."""
