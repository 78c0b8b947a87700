"""Match names of databases and tables against a user's pattern, with RE2.

RE2 takes time linear in the length of the name. The writer of the topic chooses the names, and with
Python's `re` a name of 31 letters can block a process for hours.
"""

from __future__ import annotations

from collections.abc import Callable

import re2

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False  # on standard error; the exception suffices


def name_matcher(pattern: str) -> Callable[[str], bool]:
    """Return a function that matches whole names; raise ValueError for an invalid pattern."""
    try:
        fullmatch = re2.compile(pattern, _OPTIONS).fullmatch
    except re2.error as error:
        reason = error.args[0].decode("utf-8", "replace")
        hint = "use RE2 syntax, without look-around and back-references"
        raise ValueError(f"is not a regular expression: {reason}; {hint}") from None
    except UnicodeEncodeError as error:
        raise ValueError(f"is not a regular expression: {error.reason}") from None

    def matches(name: str) -> bool:
        # JSON can escape a lone surrogate, which UTF-8 cannot encode.
        return fullmatch(name.encode("utf-8", "replace")) is not None

    return matches
