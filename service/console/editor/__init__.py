"""Help with a job spec: a suggestion from messages, and a trial run."""
