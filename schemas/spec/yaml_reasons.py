"""Explain in our words why PyYAML cannot read a text, and where to look.

PyYAML's own sentences name states of its scanner ("expected <block end>"). A user needs the mistake
and its correction; of a quote or bracket that is never closed, the place where it is opened.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

_ALIKE = "does not continue the lines before it; indent the keys of one mapping alike"
_COLON = (
    "a `:` is not expected here; indent this key like its neighbours, or put the text in quotes"
)
_UNKNOWN = "check indentation, quotes and colons here and in the line before"
# PyYAML's problem, and ours. A dash before ours: the position is that of PyYAML's context.
_REASONS = tuple(
    (re.compile(theirs, re.DOTALL), ours)
    for theirs, ours in (
        (r"found character '\\t'.*", "a tab cannot indent; use blanks"),
        (r"found character '(.+)' that .*", "a value cannot begin with {0}; put it in quotes"),
        (r"mapping values are not allowed.*", _COLON),
        (r"(?:mapping keys|block sequence entries) are not allowed.*", _ALIKE),
        (r"expected <block end>.*", _ALIKE),
        (r"expected '<document start>'.*", _ALIKE),
        (
            r"expected ',' or '(.)'.*",
            "a {0} or a comma is missing before this; opened in {context}",
        ),
        (
            r"found unexpected (?:end of stream|document sep).*",
            "-the quote here is never closed; add the second one, of the same kind",
        ),
        (r"could not find expected ':'.*", "-this key needs a colon and a value: `key: value`"),
        (r"expected the node content.*", "a value is missing here"),
        (
            r"(?:found unknown|expected) escape.*",
            "unknown escape; use single quotes, or \\\\ for \\",
        ),
        (r"expected (?:a comment or|chomping).*", "after | or > the text begins in the next line"),
        (r"expected alphabetic or numeric.*", "a value cannot begin with * or &; put it in quotes"),
        (r".* tag .*", "tags (!...) are not allowed; write the plain value"),
    )
)


def explain_yaml(error: yaml.MarkedYAMLError, *, secret: bool = False) -> tuple[str, Any]:
    """Return the reason, and the mark of the place; with `secret` quote nothing of the text."""
    mark, context = error.problem_mark or error.context_mark, error.context_mark
    if secret:
        return "is not valid YAML here", mark
    for theirs, ours in _REASONS:
        if found := theirs.fullmatch(error.problem or ""):
            opened = f"line {context.line + 1}, column {context.column + 1}" if context else "?"
            text = ours.removeprefix("-").format(*found.groups(), context=opened)
            return f"is not valid YAML here: {text}", context if ours[0] == "-" else mark
    return f"is not valid YAML here: {_UNKNOWN}", mark
