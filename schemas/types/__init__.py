"""SQL types, and how Arrow carries them."""
