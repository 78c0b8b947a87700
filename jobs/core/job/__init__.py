"""The meaning of a job spec: its plan, its windows, and the effect of changing it."""
