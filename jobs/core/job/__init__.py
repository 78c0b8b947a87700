"""What a job spec means: its plan, its windows, and what a change of it does."""
