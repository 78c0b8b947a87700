"""SQL over the current and past results of all jobs."""
