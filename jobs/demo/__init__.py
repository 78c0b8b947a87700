"""The demo: a broker, a living source, a job, and its changing results in the terminal.

    Shop ─► Feed ─► shop.product ─► job (own process) ─► items-changes ─► Follower ─► screen, lines
      └─► truth ─────────────────────── compared at the end ───────────────────┘

`run` has the order of things; everything it starts, it ends.
"""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str]) -> int:
    """`retally demo`; the exit code."""
    from jobs.demo.run import main as run

    return run(argv)
