"""Errors of the command line itself."""

from __future__ import annotations


class UsageError(Exception):
    """The arguments are wrong; exit code 2."""


class CommandFailed(Exception):
    """The command cannot do what it should; exit code 1."""
