"""The demo: a broker, a changing source, the service with two jobs, results on a screen.

    Shop ─► Feed ─► shop.product ─► items ─► items-changes ─► ages (both jobs of the service)
      │                                        └─► Follower ─► screen, lines
      └─► truth ──────────── compared at the end ──┘

`run` has the steps in order; it stops everything that it starts.
"""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str]) -> int:
    """Run `retally demo`; return the exit code."""
    from jobs.demo.run import main as run

    return run(argv)
