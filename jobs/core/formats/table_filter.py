"""Filter messages by the names of their database and table, which patterns match as a whole.

    {"database": "shop", "table": "product", ...} ──► accepted │ Filtered │ Rejected: no name

`keys` maps these fields to the names that a format has for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgspec
from msgspec import UNSET, UnsetType

from jobs.core.formats.row_fields import Memo, RefusedError, rejection
from jobs.core.values.change import Filtered, Value
from schemas.limits import FILTERED_TABLES_CACHED_MAX
from schemas.spec.values import name_matcher

FILTERED = Filtered()
_SAME_NAMES: Mapping[str, str] = {}


class OtherTableError(Exception):
    """The source does not read the table of the message."""


class TableFilter:
    """The patterns of a source; true if there are any."""

    def __init__(
        self,
        database: str | None,
        table: str | None,
        keys: Mapping[str, str] = _SAME_NAMES,  # the format's names of these fields
    ) -> None:
        patterns = {"database": database, "table": table}
        self._matches = {
            keys.get(name, name): _compile_pattern(pattern)
            for name, pattern in patterns.items()
            if pattern is not None
        }
        header = msgspec.defstruct("Header", self.fields(), gc=False)
        self.read_header: Callable[[bytes], object] = msgspec.json.Decoder(header).decode

    def __bool__(self) -> bool:
        return bool(self._matches)

    @property
    def names_read(self) -> tuple[str, ...]:
        """The fields whose patterns the source has."""
        return tuple(self._matches)

    def check(self, members: Mapping[str, object], path: str = "$") -> None:
        """Raise OtherTableError unless the source reads a message with these members.

        Raise RefusedError if the message does not name its database or table."""
        for name, matches in self._matches.items():
            if name not in members:
                reason = f"{name} is missing, and the source filters by it"
                raise RefusedError(rejection(reason, f"{path}.{name}"))
            if not matches[_jackson_text(members[name])]:
                raise OtherTableError

    # --- the fast path ----------------------------------------------------------------------

    def fields(self) -> list[tuple[str, object, object]]:
        """Return the struct fields that the filter reads."""
        return [(name, str | UnsetType | None, UNSET) for name in self._matches]

    def names(self) -> dict[str, object]:
        """Return the names that the generated lines use."""
        wanted = {f"is_wanted_{name}": matches for name, matches in self._matches.items()}
        return {"filtered": FILTERED, **wanted}

    def lines(self, node: str) -> Iterator[str]:
        """Yield lines that return `filtered` for a message that the source does not read."""
        for name in self._matches:
            yield f"if not is_wanted_{name}[{node}.{name}]: return filtered"

    def wants(self, node: object) -> bool:
        """Return whether the source reads this message; raise if a name is missing."""
        return all(matches[getattr(node, name)] for name, matches in self._matches.items())


def _compile_pattern(pattern: str) -> Memo:
    try:
        matches = name_matcher(pattern)
    except ValueError as error:
        raise ValueError(f"{pattern!r} {error}") from None

    def is_read(field: object) -> Value:
        if field is UNSET:
            raise ValueError("missing")
        return matches("null" if field is None else str(field))

    return Memo(is_read, FILTERED_TABLES_CACHED_MAX)


def _jackson_text(node: object) -> str:
    """Return a node as Jackson's asText does: "null" for null, "" for a container."""
    if node is None:
        return "null"
    if isinstance(node, bool):
        return "true" if node else "false"
    return str(node) if isinstance(node, str) else ""
