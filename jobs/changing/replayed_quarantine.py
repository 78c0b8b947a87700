"""The quarantine after a replay in a job with views.

    messages that the shadow job could not decode ─┬─ all views were replayed   replace the job's
                                                   └─ some: not in the job's    into the view's own

The views of a job share the messages that no view could decode. After a replay of some views, the
others still have what they decoded then. So a message that only the replay refused is in the
quarantine of the replayed view. If only the job refused it, the view has it and the others do not,
and sending it again would count it twice: then there is no right quarantine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from jobs.changing.clone import write_part
from jobs.core.values.change import RejectCode
from jobs.edge.table.file_writer import AddedFile
from jobs.edge.table.reading import TableReader
from jobs.table.files import LiveFile
from jobs.table.parts import QUARANTINE
from jobs.table.version import TableVersion
from schemas.table.epoch import Offsets
from schemas.table.object_path import TablePath
from schemas.table.parquet_file import rows_in
from schemas.types.arrow_values import to_list

_CODE = "quarantine_code"  # not in files of older versions
_POSITION = ("topic", "partition", "offset")
Message = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class SharedQuarantine:
    """The messages that a job refused for all its views."""

    codes: dict[Message, str | None]  # why; an expression is of the job's own query

    @classmethod
    def read(cls, table: TableVersion) -> SharedQuarantine:
        codes: dict[Message, str | None] = {}
        for file in table.of_part(QUARANTINE):
            codes.update(_codes_in(table.read(file)))
        return cls(codes)

    def find_conflict(self, view: str, shadow: TableReader) -> str | None:
        """Return why the job cannot take the view of a shadow job; None if it can."""
        refused: dict[Message, str | None] = {}
        for table in _shared_tables(shadow):
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
            if code != RejectCode.EXPRESSION and message not in self.codes:
                return (
                    f"the replay for the query refused message {_name(message)}, which the other "
                    "views have taken; give the query to a job of its own"
                )
        return None

    def list_new(self, view: str, shadow: TableReader) -> Iterator[pa.Table]:
        """Yield the rows of the shared part of a shadow job that belong to this view only."""
        for table in _shared_tables(shadow):
            codes = _codes_in(table)
            own = [
                message not in self.codes and (not view or code != RejectCode.EXPRESSION)
                for message, code in codes
            ]
            yield table.filter(pa.array(own, pa.bool_()))


def write_shared(
    shadow: TableReader, epoch: int, root: TablePath, name: str, *, durable: bool
) -> list[AddedFile]:
    """Write the shared quarantine of a shadow job as that of the table at `root`."""
    schema = shadow.layout.schema(QUARANTINE)
    return write_part(epoch, root, name, schema, _shared_tables(shadow), durable)


def count_own(shadow: TableReader) -> int:
    """Count the messages on which an expression of the job's own query fails."""
    codes = (code for table in _shared_tables(shadow) for _, code in _codes_in(table))
    return sum(code == RejectCode.EXPRESSION for code in codes)


def _is_shared(view: str, file: LiveFile) -> bool:
    """Return whether a file that a view sees is for all views; "" has no others."""
    return not view or file.is_shared


def _shared_tables(shadow: TableReader) -> Iterable[pa.Table]:
    for file in shadow.of_part(QUARANTINE):
        if _is_shared(shadow.paths.view, file):
            yield rows_in(shadow.root / file.path)


def _codes_in(table: pa.Table) -> list[tuple[Message, str | None]]:
    """Return the message and the code of each row."""
    messages = zip(*(to_list(table[column]) for column in _POSITION), strict=True)
    known = _CODE in table.schema.names
    codes = to_list(table[_CODE]) if known else [None] * table.num_rows
    return list(zip(messages, codes, strict=True))


def _is_between(message: Message, start: Offsets, end: Offsets) -> bool:
    topic, partition, offset = message
    first, last = (each.get(topic, {}).get(str(partition), 0) for each in (start, end))
    return first <= offset < last


def _name(message: Message) -> str:
    topic, partition, offset = message
    return f"{topic}/{partition} offset {offset}"
