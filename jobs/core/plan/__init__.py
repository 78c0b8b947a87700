"""The tree of a query, its types, and the closed list of functions."""
