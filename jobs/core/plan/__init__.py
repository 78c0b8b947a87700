"""The plan of a query as a tree, its typing rules, and the list of scalar functions."""
