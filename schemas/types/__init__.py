"""SQL types, and their values in Python and Arrow."""
