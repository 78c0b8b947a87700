"""The quarantine after a replay in a job with views.

    messages that the shadow job could not decode ─┬─ all views were replayed   replace the job's
                                                   └─ some: not in the job's    into the view's own

The views of a job share the messages that no view could decode. After a replay of some views, the
others still have what they decoded then. So a message that only the replay refused is in the
quarantine of the replayed view. If only the job refused it, the view has it and the others do not,
and sending it again would count it twice: then there is no right quarantine.

Retention removes messages from the quarantine, and the topic may still have them. So what the job
has done with an old message may be unknown. It then counts as refused by all views, as most are,
and the replayed view gives its state to no other view.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from jobs.core.values.change import RejectCode
from jobs.edge.table.reading import TableReader
from jobs.reading.epoch_rows import counted_rows
from jobs.reading.files import LiveFile
from jobs.reading.parts import QUARANTINE
from jobs.reading.version import TableVersion
from schemas.table.epoch import Offsets
from schemas.table.parquet_file import rows_in
from schemas.types.arrow_values import to_list

_POSITION = ("topic", "partition", "offset")
Message = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class SharedQuarantine:
    """The messages that a job refused for all its views."""

    codes: dict[Message, str | None]  # why; an expression is of the job's own query
    known_from: Offsets  # before these offsets, refused messages may be missing

    @classmethod
    def read(cls, table: TableVersion) -> SharedQuarantine:
        codes: dict[Message, str | None] = {}
        listed = Counter[int]()
        for file in table.of_part(QUARANTINE):
            rows = table.read(file)
            codes.update(_codes_in(rows))
            listed.update(to_list(rows["epoch"]))
        return cls(codes, _find_known_start(table, listed))

    def find_conflict(self, view: str, shadow: TableReader) -> str | None:
        """Return why the job cannot take the view of a shadow job; None if it can."""
        refused: dict[Message, str | None] = {}
        for table in shared_tables(shadow):
            refused.update(_codes_in(table))
        start = {} if shadow.start is None else shadow.start.offsets
        named = f"view {view!r}" if view else "the query"
        for message, code in self.codes.items():
            read = _is_between(message, start, shadow.newest.offsets)
            if read and code != RejectCode.EXPRESSION and message not in refused:
                return (
                    f"the job has message {_name(message)} in quarantine, but the replay for "
                    f"{named} has taken it; give {named} to a job of its own"
                )
        if view:
            return None
        for message, code in refused.items():
            if code != RejectCode.EXPRESSION and self._took(message):
                return (
                    f"the replay for the query refused message {_name(message)}, which the other "
                    "views have taken; give the query to a job of its own"
                )
        return None

    def list_new(self, view: str, shadow: TableReader) -> Iterator[pa.Table]:
        """Yield the rows of the shared part of a shadow job that belong to this view only."""
        for table in shared_tables(shadow):
            codes = _codes_in(table)
            own = [self._is_new(view, message, code) for message, code in codes]
            yield table.filter(pa.array(own, pa.bool_()))

    def count_unknown(self, shadow: TableReader) -> int:
        """Count the refused messages of a shadow job which other views may have taken."""
        codes = (each for table in shared_tables(shadow) for each in _codes_in(table))
        return sum(
            code != RejectCode.EXPRESSION and message not in self.codes and not self._took(message)
            for message, code in codes
        )

    def _is_new(self, view: str, message: Message, code: str | None) -> bool:
        """Return whether a message that a shadow job refused for all is of this view only."""
        if view:
            return code != RejectCode.EXPRESSION and self._took(message)
        # `find_conflict` allows no other message of the query.
        return code == RejectCode.EXPRESSION and message not in self.codes

    def _took(self, message: Message) -> bool:
        """Return whether the job has certainly not refused a message for all its views."""
        return message not in self.codes and not _is_between(message, {}, self.known_from)


def count_own(shadow: TableReader) -> int:
    """Count the messages on which an expression of the job's own query fails."""
    codes = (code for table in shared_tables(shadow) for _, code in _codes_in(table))
    return sum(code == RejectCode.EXPRESSION for code in codes)


def _find_known_start(table: TableVersion, listed: Mapping[int, int]) -> Offsets:
    """Return the offsets from which on the quarantine has each message that the job refused.

    `listed` has the number of its messages by epoch. The counters of an epoch stay if retention
    removes its messages, at last as a part of the start row. A clone counts none of its original.
    """
    known: Offsets = {}
    rows = counted_rows(table.root, table.files)
    for row, following in zip(rows, [*rows[1:], rows[-1]], strict=True):
        if row.counts.quarantined > listed.get(row.epoch, 0) or row.counts.cloned is not None:
            known = following.offsets  # a start row has the sums of all epochs before the next row
    return known


def _is_shared(view: str, file: LiveFile) -> bool:
    """Return whether a file that a view sees is for all views; "" has no others."""
    return not view or file.is_shared


def shared_tables(shadow: TableReader) -> Iterable[pa.Table]:
    """Yield the messages that a shadow job refused for all its views."""
    for file in shadow.of_part(QUARANTINE):
        if _is_shared(shadow.paths.view, file):
            yield rows_in(shadow.root / file.path)


def _codes_in(table: pa.Table) -> list[tuple[Message, str | None]]:
    messages = zip(*(to_list(table[column]) for column in _POSITION), strict=True)
    return list(zip(messages, to_list(table["quarantine_code"]), strict=True))


def _is_between(message: Message, start: Offsets, end: Offsets) -> bool:
    topic, partition, offset = message
    first, last = (each.get(topic, {}).get(str(partition), 0) for each in (start, end))
    return first <= offset < last


def _name(message: Message) -> str:
    topic, partition, offset = message
    return f"{topic}/{partition} offset {offset}"
