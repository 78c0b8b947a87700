"""Run a job. Read `pipeline` first: one epoch, from the planned ranges to the commit."""
