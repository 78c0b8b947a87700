"""Read SQL text into a plan, and print plan expressions as SQL."""
