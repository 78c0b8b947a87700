"""Patterns over names of databases and tables, matched as a whole by RE2.

RE2 takes time that grows with the length of a name alone. Names come from whoever writes the topic,
and with Python's `re` 31 letters of a name can hold a process for hours.
"""

from __future__ import annotations

from collections.abc import Callable

import re2

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False  # to standard error, beside the one that is raised


def name_matcher(pattern: str) -> Callable[[str], bool]:
    """Return whether a name matches; raise ValueError for what is no pattern of RE2."""
    try:
        fullmatch = re2.compile(pattern, _OPTIONS).fullmatch
    except re2.error as error:
        reason = error.args[0].decode("utf-8", "replace")
        hint = "look-around and back-references are not possible"
        raise ValueError(f"is not a regular expression: {reason}; {hint}") from None
    except UnicodeEncodeError as error:
        raise ValueError(f"is not a regular expression: {error.reason}") from None

    def matches(name: str) -> bool:
        # A lone surrogate, which JSON can escape, has no bytes.
        return fullmatch(name.encode("utf-8", "replace")) is not None

    return matches
