"""Commands about this machine, without a job."""
