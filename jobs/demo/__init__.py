"""The demo: a broker, a living source, the service with two jobs, results in terminal and browser.

    Shop ─► Feed ─► shop.product ─► items ─► items-changes ─► ages (both jobs of the service)
      │                                        └─► Follower ─► screen, lines
      └─► truth ──────────── compared at the end ──┘

`run` has the order of things; everything it starts, it ends.
"""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str]) -> int:
    """`retally demo`; the exit code."""
    from jobs.demo.run import main as run

    return run(argv)
