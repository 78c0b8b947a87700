"""The root of a view: a directory in the job's table with the files of this view only.

    jobs/items/epochs                  the table: its log, and the files that all views share
    jobs/items/epochs/view=top         the root of view `top`: part=changelog and so on

A name of a file is relative to the root from which it is read, so that tasks and readers work on a
view as on a table with one query. The part of a view's file is `top:changelog` in the log.
"""

from __future__ import annotations

from pathlib import Path

from schemas.table.object_path import TablePath

# Parts for all views; a view may also have a quarantine of its own.
SHARED = ("epochs", "quarantine", "rows")
_MARK = "view="
_UP = "../"


def view_root(table: TablePath, view: str) -> TablePath:
    """Return the root of a view; "" is the job's own query, whose root is the table."""
    return table / f"{_MARK}{view}" if view else table


def list_roots(table: TablePath) -> dict[str, TablePath]:
    """Return the roots that a table has or had, by view; "" is the table itself."""
    if isinstance(table, Path):
        names = [path.name for path in table.glob(f"{_MARK}*")]
    else:
        names = table.list_directories()
    views = [name.removeprefix(_MARK) for name in names if name.startswith(_MARK)]
    return {view: view_root(table, view) for view in ("", *views)}


def split_root(root: TablePath) -> tuple[TablePath, str]:
    """Return the table of a root, and the name of its view."""
    if root.name.startswith(_MARK):
        return root.parent, root.name.removeprefix(_MARK)
    return root, ""


def place_part(part: str, view: str) -> str:
    """Return the part in the log of a part of a view."""
    return f"{view}:{part}" if view else part


def split_part(part: str) -> tuple[str, str]:
    """Return the view and the part of a part in the log."""
    view, _, own = part.rpartition(":")
    return view, own


def is_seen(view: str, owner: str, part: str) -> bool:
    """Return whether a view sees the files of a part of `owner`, which is a view or ""."""
    return owner == view or (not owner and part in SHARED)


def place_name(name: str, view: str) -> str:
    """Return the name in the table of a file whose name is relative to a view's root."""
    if not view:
        return name
    return name.removeprefix(_UP) if name.startswith(_UP) else f"{_MARK}{view}/{name}"


def name_from(name: str, view: str) -> str:
    """Return the name relative to a view's root of a file whose name is relative to the table."""
    if not view:
        return name
    own = f"{_MARK}{view}/"
    return name.removeprefix(own) if name.startswith(own) else _UP + name
