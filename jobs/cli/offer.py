"""Offer the set-up of an installed package to the user whose command needs it first."""

from __future__ import annotations

import sys

from jobs.cli.output import print_note
from jobs.edge.machine.jars import JarsMissing, is_checkout, user_cache
from jobs.edge.machine.java import JavaMissing

MISSING = (JarsMissing, JavaMissing)
_QUESTION = "Fetch them now (some 100 MB, into {where})? [Y/n] "


def offer_setup(missing: Exception) -> bool:
    """Ask on a terminal whether to run `retally setup`; return whether that was done."""
    if is_checkout() or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    from jobs.setup.steps import Environment, set_up

    print_note(f"retally: {missing}")
    print(_QUESTION.format(where=user_cache()), end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("", "y", "yes"):
        return False
    set_up(Environment.of_this_process())
    return True
