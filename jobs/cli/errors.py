"""Errors that belong to the command line itself."""

from __future__ import annotations


class UsageError(Exception):
    """The command was called in a way that cannot work; exit code 2."""


class CommandFailed(Exception):
    """The command did its work, and the answer is no; exit code 1."""
