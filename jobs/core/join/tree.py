"""Join the changes of several sources, epoch after epoch.

    orders ───► scan o ─┐ batches      ┌─ batches
    customers ► scan c ─┴─► join ──────┴─► join ─► batches of changes of joined rows ─► fold
    shipped ──► scan s ────────────────────┘

A batch has at most JOIN_BATCH_ROWS rows, each once, with only the columns that something reads. So
a change that a million rows join takes the memory of one batch, and changes of them that cancel
each other out, or fall together, mostly do so before they are sent on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from jobs.core.join.arrangement import Arrangement, MemoryArrangement, WeightedRow
from jobs.core.join.operator import JoinOperator, raise_failure
from jobs.core.plan.relations import list_joins, list_scans
from jobs.core.plan.tree import Relation
from jobs.core.rows.projection import RowFailed
from jobs.core.values.change import Row
from schemas.limits import JOIN_BATCH_ROWS

Batch = list[WeightedRow]


class JoinedRows:
    """The rows of a tree of joins, of which only the changes leave it."""

    def __init__(
        self,
        relation: Relation,
        arrange: Callable[[], Arrangement] = MemoryArrangement,
        on_failure: Callable[[RowFailed, int], None] = raise_failure,
    ) -> None:
        self._scans = [scan.alias for scan in list_scans(relation)]
        joins = list_joins(relation)
        self._operators = [
            JoinOperator(join, arrange(), arrange(), on_failure=on_failure) for join in joins
        ]

    def advance(
        self, changes: Mapping[str, Iterable[WeightedRow]], rows_max: int = JOIN_BATCH_ROWS
    ) -> Iterator[Batch]:
        """Take the changes of scans by their aliases; yield those of the joined rows.

        The caller exhausts the iterator before the next call."""
        first, *others = self._scans
        stream = make_batches(changes.get(first, ()), rows_max)
        for operator, alias in zip(self._operators, others, strict=True):
            joined = _advance(operator, stream, changes.get(alias, ()))
            stream = make_batches(joined, rows_max)
        return stream


def _advance(
    operator: JoinOperator, left: Iterator[Batch], right: Iterable[WeightedRow]
) -> Iterator[WeightedRow]:
    """Yield the changes of a join; the right ones come with the first batch of the left."""
    yield from operator.advance(next(left, ()), right)
    for batch in left:
        yield from operator.advance(batch, ())


def make_batches(changes: Iterable[WeightedRow], rows_max: int) -> Iterator[Batch]:
    """Yield changes in batches of at most so many rows, each once and none of weight zero."""
    rows: dict[Row, int] = {}
    for row, weight in changes:
        rows[row] = rows.get(row, 0) + weight
        if len(rows) == rows_max:
            yield from _list_changes(rows)
            rows = {}
    yield from _list_changes(rows)


def _list_changes(rows: Mapping[Row, int]) -> Iterator[Batch]:
    if batch := [(row, weight) for row, weight in rows.items() if weight]:
        yield batch
