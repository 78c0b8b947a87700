"""Change a stopped job's table by one epoch: rewind, savepoint, clone, evolve, offsets, replay."""
