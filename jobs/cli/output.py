"""Output of commands: JSON lines for programs, tables for people.

Values come from other people's data. So rich never parses them as markup, and control characters
in them never reach the terminal.
"""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from jobs.core.values.json_values import Json
from schemas.spec.file import Problem, SpecError

if TYPE_CHECKING:
    from rich.console import Console

PIPE_COLUMNS = 10_000  # output to a pipe is not cut to the width of a screen
OP_STYLES = {"+I": "green", "+U": "cyan", "-U": "dim cyan", "-D": "red"}
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def describe_moved(epoch: int) -> str:
    """Return the note for results of a job whose offsets somebody moved by hand."""
    return f"Offsets were moved by hand at epoch {epoch}: this is not the query over the topic."


def print_json(*documents: object) -> None:
    """Print documents, one a line."""
    for document in documents:
        sys.stdout.write(json.dumps(document, ensure_ascii=False) + "\n")


def open_console(*, errors: bool = False) -> Console:
    from rich.console import Console

    stream = sys.stderr if errors else sys.stdout
    return Console(
        file=stream, width=None if stream.isatty() else PIPE_COLUMNS, highlight=False, markup=False
    )


def print_note(text: str) -> None:
    """Print a note beside the answer, on standard error, so that the answer can be piped."""
    print(text, file=sys.stderr)


def render_cell(value: Json) -> str:
    """Return a value as the text of a table cell."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | dict):
        value = json.dumps(value, ensure_ascii=False)
    return escape_controls(str(value))


def escape_controls(text: str) -> str:
    """Escape the characters that move a cursor or change the direction of text."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def print_table(columns: Sequence[tuple[str, bool]], rows: Iterable[Sequence[Json]]) -> None:
    """Print a table. A column is its name, and whether its values are numbers."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name, numeric in columns:
        table.add_column(Text(name), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        cells = [
            Text(
                render_cell(value), style="dim" if value is None else OP_STYLES.get(str(value), "")
            )
            for value in row
        ]
        table.add_row(*cells)
    open_console().print(table)


@contextmanager
def show_waiting(text: str) -> Iterator[Callable[[str], None]]:
    """Show a spinner on a terminal until the block ends; yield what changes its text."""
    screen = open_console(errors=True)
    if not screen.is_terminal:
        yield lambda _: None
        return
    with screen.status(escape_controls(text)) as status:
        yield lambda changed: status.update(escape_controls(changed))


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
    """Yield a line of a text, and the line with the caret.

    items.yaml:4:35: query: unknown column `count` (try: cnt)
        4 | query: SELECT name, SUM(count) FROM t GROUP BY name
          |                         ^
    """
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
