"""A job's table: epoch rows, changelog records, files, and the roots of views."""
