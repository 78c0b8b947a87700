"""Change a stopped job by one epoch: rewind, clone, evolve, offsets, savepoint, replay."""
