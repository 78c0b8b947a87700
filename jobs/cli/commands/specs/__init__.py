"""Commands that make specs."""
