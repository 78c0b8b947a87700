"""Join changes of several sources; the rows of both sides are state."""
