"""Offer the set-up of an installed package to the user whose command needs it first."""

from __future__ import annotations

import sys

from jobs.cli.output import print_note
from jobs.edge.machine.jars import JarsMissing, is_checkout, user_cache
from jobs.edge.machine.java import JavaMissing

MISSING = (JarsMissing, JavaMissing)


def is_terminal() -> bool:
    """Return whether a person can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def read_answer(question: str, default: str | None = None) -> str:
    """Return the answer of the person at the terminal, or the default for an empty line."""
    print(question, end=f" [{default}] " if default else " ", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip() or default or ""


def confirm(question: str) -> bool:
    """Return whether the person agrees; the end of the terminal is no agreement."""
    print(question, end=" [Y/n] ", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    return line != "" and line.strip().lower() in ("", "y", "yes")


def offer_setup(missing: Exception) -> bool:
    """Ask on a terminal whether to run `retally setup`; return whether that was done."""
    if is_checkout() or not is_terminal():
        return False
    from jobs.setup.steps import Environment, set_up

    print_note(f"retally: {missing}")
    if not confirm(f"Fetch them now (some 100 MB, into {user_cache()})?"):
        return False
    set_up(Environment.of_this_process())
    return True
