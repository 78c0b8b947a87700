"""Output of commands: JSON lines and CSV for programs, tables for people.

              -o json    a document a line, with the keys of the REST API
documents ──► -o csv     the columns of the table, or all fields of the documents
              -o table   a table, or the command's own text

Values come from other people's data. So rich never parses them as markup, and control characters
in them never reach the terminal.
"""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from jobs.cli.errors import CommandFailed
from jobs.core.values.csv_lines import write_line
from jobs.core.values.json_values import Json
from schemas.spec.file import Problem, SpecError

if TYPE_CHECKING:
    from rich.console import Console

PIPE_COLUMNS = 10_000  # output to a pipe is not cut to the width of a screen
OP_STYLES = {"+I": "green", "+U": "cyan", "-U": "dim cyan", "-D": "red"}
# The value of a column: a key of the document, or what a function returns for it.
Columns = Mapping[str, str | Callable[[Any], Json]]
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def describe_moved(epoch: int) -> str:
    """Return the note for results of a job whose offsets somebody moved by hand."""
    return f"Offsets were moved by hand at epoch {epoch}: this is not the query over the topic."


def print_answer(
    form: str,
    documents: Iterable[Any],
    columns: Columns | None = None,
    *,
    text: Callable[[Any], object] | None = None,
    numbers: Collection[str] | None = None,
    flush: bool = False,
) -> None:
    """Print documents in a form of --output; `text` prints one of them for people.

    Without `text` people read a table of `columns`, with those of `numbers` on the right. `flush`
    is for documents that come one by one.
    """
    if form == "table" and columns is not None and text is None:
        print_table([*columns], [_pick(each, columns) for each in documents], numbers)
        return
    if form == "table":
        done: Iterator[object] = map(text or print, documents)
    else:
        lines = _write_csv(documents, columns) if form == "csv" else _write_json(documents)
        done = map(_write, lines)
    for _ in done:
        if flush:
            sys.stdout.flush()


def _write(line: str) -> None:
    """Write a line; to a terminal without the control characters of its values."""
    sys.stdout.write(f"{escape_controls(line.rstrip())}\n" if sys.stdout.isatty() else line)


def _pick(document: Any, columns: Columns) -> list[Json]:
    return [document.get(c) if isinstance(c, str) else c(document) for c in columns.values()]


def _write_json(documents: Iterable[Any]) -> Iterator[str]:
    return (json.dumps(each, ensure_ascii=False) + "\n" for each in documents)


def _write_csv(documents: Iterable[Any], columns: Columns | None) -> Iterator[str]:
    """Yield the lines of columns, or those of the fields of all documents.

    Of an iterator the first document has all fields: the rest is read while it is written.
    """
    names: list[str] = []
    if columns is not None:
        names = [each if isinstance(each, str) else name for name, each in columns.items()]
    elif not isinstance(documents, Iterator):
        found = dict.fromkeys(name for each in documents for name in _flatten(each))
        names = [name for name in found if not any(n.startswith(f"{name}.") for n in found)]
    if names:
        yield write_line(names)
    for each in documents:
        row = (
            _flatten(each)
            if columns is None
            else dict(zip(names, _pick(each, columns), strict=True))
        )
        if not names:
            names = [*row]
            yield write_line(names)
        new = [name for name, value in row.items() if name not in names and value is not None]
        gone = [n for n in names if n not in row and n.partition(".")[0] not in row]
        if isinstance(documents, Iterator) and (new or gone):
            at = each["epoch"]
            what = ", ".join([*(f"new {n}" for n in new), *(f"no {n}" for n in gone)])
            raise CommandFailed(
                f"the columns change at epoch {at} ({what}): retally changes with "
                f"--since {at - 1} continues under their header"
            )
        yield write_line(map(row.get, names))


def _flatten(document: Mapping[str, Any]) -> dict[str, Json]:
    """Return the fields of a document; a field of an object in it is `object.field`."""
    found: dict[str, Json] = {}
    for name, value in document.items():
        if isinstance(value, dict) and value:
            found |= {f"{name}.{each}": inner for each, inner in value.items()}
        else:
            found[name] = None if value == {} else value
    return found


def open_console(*, errors: bool = False) -> Console:
    from rich.console import Console

    class PipeConsole(Console):
        def on_broken_pipe(self) -> NoReturn:
            raise BrokenPipeError  # the command ends as without rich

    stream = sys.stderr if errors else sys.stdout
    return PipeConsole(
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


def print_table(
    names: Sequence[str], rows: Sequence[Sequence[Json]], numbers: Collection[str] | None = None
) -> None:
    """Print a table; `numbers` are the columns on the right, by default those with numbers only."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for index, name in enumerate(names):
        values = [row[index] for row in rows if row[index] is not None]
        numeric = bool(values) and all(type(each) in (int, float) for each in values)
        numeric = numeric if numbers is None else name in numbers
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
