"""Clients of the service under load, in processes of their own."""
