"""Show the line of a text in which a problem is, with a caret under the place.

items.yaml:4:35: query: unknown column `count` (try: cnt)
    4 | query: SELECT name, SUM(count) FROM t GROUP BY name
      |                         ^
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator

from jobs.cli.output import escape_controls
from schemas.spec.file import Problem, SpecError

_COLUMNS_MAX = 90  # of a line; more is cut on both sides of the place


def describe_problems(error: SpecError) -> str:
    """Return the problems of a spec, each with its line if messages may show the file."""
    return "\n".join(_describe(error.problems, error.source, error.text))


def _describe(problems: Iterable[Problem], source: str, text: str | None) -> Iterator[str]:
    lines = [] if text is None else text.split("\n")
    for problem in problems:
        yield problem.describe(source)
        if problem.line is not None and 0 < problem.line <= len(lines):
            yield from draw_position(lines[problem.line - 1], problem.line, problem.column or 1)


def draw_position(line: str, number: int, column: int) -> Iterator[str]:
    """Yield a line of a text, and the line with the caret."""
    before, rest = _prepare(line[: column - 1]), _prepare(line[column - 1 :])
    if len(before) + len(rest) > _COLUMNS_MAX:
        kept = min(len(before), max(_COLUMNS_MAX // 2, _COLUMNS_MAX - len(rest)))
        before = before if kept == len(before) else "…" + before[len(before) - kept + 1 :]
        room = _COLUMNS_MAX - len(before)
        rest = rest if len(rest) <= room else rest[: room - 1] + "…"
    yield f"{number:>5} | {before}{rest}"
    yield f"      | {' ' * _count_cells(before)}^"


def _prepare(text: str) -> str:
    return escape_controls(text.rstrip("\r").replace("\t", " "))


def _count_cells(text: str) -> int:
    """Return how many cells of a terminal a text takes: two for a wide character."""
    wide = sum(unicodedata.east_asian_width(each) in "WF" for each in text)
    return len(text) + wide - sum(unicodedata.combining(each) > 0 for each in text)
