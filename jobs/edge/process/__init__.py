"""Our own processes: locks, failpoints, the embedded broker, a job's directory."""
