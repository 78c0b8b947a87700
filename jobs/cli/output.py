"""What commands print: JSON lines for programs, tables for people.

Values come from other people's data: they are never read as markup, and control characters in
them never reach the terminal.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from jobs.core.values.json_values import Json

if TYPE_CHECKING:
    from rich.console import Console

PIPE_COLUMNS = 10_000  # what is piped is not cut to a screen
OP_STYLES = {"+I": "green", "+U": "cyan", "-U": "dim cyan", "-D": "red"}
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def moved_note(epoch: int) -> str:
    """What has to be said of a job whose offsets were moved by hand."""
    return f"Offsets were moved by hand at epoch {epoch}: this is not the query over the topic."


def print_json(document: object) -> None:
    sys.stdout.write(json.dumps(document, ensure_ascii=False) + "\n")


def console(*, errors: bool = False) -> Console:
    from rich.console import Console

    stream = sys.stderr if errors else sys.stdout
    return Console(
        file=stream, width=None if stream.isatty() else PIPE_COLUMNS, highlight=False, markup=False
    )


def note(text: str) -> None:
    """Something beside the answer; on standard error, so that the answer can be piped."""
    print(text, file=sys.stderr)


def shown(value: Json) -> str:
    """A value in a table."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    return safe(str(value))


def safe(text: str) -> str:
    """Text that cannot move a terminal's cursor or turn its line around."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def print_table(
    columns: Sequence[tuple[str, bool]], rows: Iterable[Sequence[Json]], *, title: str | None = None
) -> None:
    """A table of named columns; the flag says whether a column is of numbers."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    for name, numeric in columns:
        table.add_column(Text(name), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        cells = [
            Text(shown(value), style="dim" if value is None else OP_STYLES.get(str(value), ""))
            for value in row
        ]
        table.add_row(*cells)
    console().print(table)


def print_change(document: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(document)
        return
    text = safe(json.dumps(document["row"], ensure_ascii=False))
    line = f"{document['epoch']:>6} {document['op']} {text}"
    console().print(line, style=OP_STYLES[document["op"]], soft_wrap=True)


def print_messages(documents: Iterable[Mapping[str, Any]]) -> None:
    """Messages of a quarantine."""
    columns = [("message", False), ("reason", False), ("path", False), ("sent again as", True)]
    print_table(
        columns,
        [
            [each["id"], each["reason"], each["path"], (each["replayed"] or {}).get("offset")]
            for each in documents
        ],
    )


@contextmanager
def waiting(text: str) -> Iterator[None]:
    """A sign of life for people while something takes its time."""
    screen = console(errors=True)
    if not screen.is_terminal:
        yield
        return
    with screen.status(safe(text)):
        yield
