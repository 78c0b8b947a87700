"""Which databases and tables a source reads: full matches of names in a message's envelope.

    {"database": "shop", "table": "product", ...} ──► None: read on │ Filtered │ Rejected: no name

Formats call these fields differently; `keys` says how.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from msgspec import UNSET, UnsetType

from jobs.core.formats.row_fields import UNEXPECTED, Memo, rejected
from jobs.core.values.change import Filtered, Rejected, Value
from schemas.spec.name_pattern import name_matcher

FILTERED = Filtered()

_TABLES_REMEMBERED = 10_000


class TableFilter:
    """The patterns of a source, for the fast way and for the exact one."""

    def __init__(
        self,
        database: str | None,
        table: str | None,
        keys: Mapping[str, str] | None = None,  # what the format calls them
    ) -> None:
        given = {"database": database, "table": table}
        named = keys or {"database": "database", "table": "table"}
        self._matches = {
            named[name]: _filter(pattern) for name, pattern in given.items() if pattern is not None
        }

    def __bool__(self) -> bool:
        return bool(self._matches)

    def refusal(self, members: Mapping[str, object], path: str = "$") -> Filtered | Rejected | None:
        """Why a message with these members is not read; None where it is."""
        for name, matches in self._matches.items():
            if name not in members:
                reason = f"{name} is missing, and the source filters by it"
                return rejected(reason, f"{path}.{name}")
            if not matches[_filter_text(members[name])]:
                return FILTERED
        return None

    # --- the fast way -----------------------------------------------------------------------

    def fields(self) -> list[tuple[str, object, object]]:
        """What a struct needs for the filter to look at."""
        return [(name, str | UnsetType | None, UNSET) for name in self._matches]

    def names(self) -> dict[str, object]:
        wanted = {f"is_wanted_{name}": matches for name, matches in self._matches.items()}
        return {"filtered": FILTERED, **wanted}

    def lines(self, node: str) -> Iterator[str]:
        for name in self._matches:
            yield f"if not is_wanted_{name}[{node}.{name}]: return filtered"

    def wants(self, node: object) -> bool:
        """Whether a struct's message is read; one without the names is no case for the fast way."""
        return all(matches[getattr(node, name)] for name, matches in self._matches.items())

    def foreign(self, read_node: Callable[[bytes], object], value: bytes) -> Filtered | None:
        """Whether a message is of another table, whose rows need not look like ours."""
        try:
            if not self.wants(read_node(value)):
                return FILTERED
        except (*UNEXPECTED, AttributeError):
            pass
        return None


def _filter(pattern: str) -> Memo:
    try:
        matches = name_matcher(pattern)
    except ValueError as error:
        raise ValueError(f"{pattern!r} {error}") from None

    def wanted(field: object) -> Value:
        if field is UNSET:
            raise ValueError("missing")
        return matches("null" if field is None else str(field))

    return Memo(wanted, _TABLES_REMEMBERED)


def _filter_text(node: object) -> str:
    """A node as Jackson's asText has it: null is the text null, a container is empty."""
    if node is None:
        return "null"
    if isinstance(node, bool):
        return "true" if node else "false"
    return str(node) if isinstance(node, str) else ""
