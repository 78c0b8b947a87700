"""`replay(spec, steps)`, under the name that other people's code imports."""

from jobs.offline.replay import replay

__all__ = ["replay"]
