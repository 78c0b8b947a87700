"""SQL over results as PostgreSQL's clients ask and read it."""
