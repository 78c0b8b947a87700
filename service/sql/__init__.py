"""SQL over results: whose turn it is, and the processes that answer."""
