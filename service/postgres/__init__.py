"""PostgreSQL's protocol: results for every tool that reads from a PostgreSQL server."""
