"""Fold the bundles of one query in memory: `Bundle` has the rows, `MemoryFold` the groups.

    signed rows ──► Bundle ──► one Consolidation per partition ──► MemoryFold: project, gather, fold
                                                                            │
                                           laws ◄── changelog rows ◄────────┴──► MemoryState

The pipeline does the same with a task for each range and a hot state for each bucket. Replays,
simulations and the tests of the core use this module.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from operator import itemgetter
from typing import Any

from jobs.core.fold.fold import FoldContext, FoldResult, open_groups
from jobs.core.fold.laws import repeats_the_last_row, well_formed
from jobs.core.fold.program import Program
from jobs.core.fold.rules import DEFAULT_RULES, Rules
from jobs.core.fold.sessions import fold_bundle, fold_due
from jobs.core.fold.state import Clock, Key, MemoryState
from jobs.core.plan.tree import Plan
from jobs.core.rows.consolidate import Consolidation
from jobs.core.rows.projection import Projection
from jobs.core.values.change import Row
from jobs.core.values.order_key import encoder


class Bundle:
    """The signed rows of one bundle; `consolidate` sorts them by partition, offset and index."""

    __slots__ = ("_partitions", "rows")

    def __init__(self) -> None:
        self.rows = 0
        self._partitions: dict[Any, list[tuple[int, tuple[int, Row]]]] = {}

    def add(self, partition: Any, offset: int, changes: Iterable[tuple[int, Row]]) -> None:
        """Add the changes of one message, or the part of them that belongs to this bundle.

        All partitions are numbers, or all are TopicPartitions.
        """
        rows = self._partitions.setdefault(partition, [])
        before = len(rows)
        rows.extend((offset, change) for change in changes)
        self.rows += len(rows) - before

    def consolidate(self) -> list[Consolidation]:
        """Return one consolidation per partition, in order, as the decode tasks emit them."""
        consolidations = []
        for ordinal, partition in enumerate(sorted(self._partitions)):
            rows = sorted(self._partitions[partition], key=itemgetter(0))
            consolidation = Consolidation(ordinal)
            consolidation.add(change for _, change in rows)
            consolidations.append(consolidation)
        return consolidations


class MemoryFold:
    """Folds bundle after bundle of one query into a MemoryState, and checks the laws.

    In a query with windows the caller expands rows to windows first; `plan` is the plan before
    that step. `group_of` returns the group of a row if a decode task knows it (see
    `Consolidation.consolidate`); the outcome is the same without it.
    """

    def __init__(
        self,
        plan: Plan,
        projection: Projection,
        *,
        rules: Rules = DEFAULT_RULES,
        group_of: Callable[[Row], Hashable] | None = None,
    ) -> None:
        self.plan = plan
        self.program = Program(plan)
        self.state = MemoryState()
        self._projection = projection
        self._rules = rules
        self._group_of = group_of
        self._order = encoder(tuple(column.type for column in plan.group))

    def open_groups(self) -> FoldResult:
        """Emit the rows that groups have without input; the next calls emit nothing."""
        keys, context = self.plan.empty_keys, self._context(0, None)
        return self._apply(open_groups(self.program, self.state, keys, context))

    def fold(
        self, ranges: Iterable[Consolidation], now_ms: int = 0, watermark: int | None = None
    ) -> FoldResult:
        """Fold one bundle and apply its changes to the state."""
        deltas = self.program.gather(*self.weigh(ranges))
        context = self._context(now_ms, watermark)
        return self._apply(fold_bundle(self.program, self.state, deltas, context))

    def pass_time(
        self, now_ms: int = 0, *, release: bool = False, watermark: int | None = None
    ) -> FoldResult:
        """Fold the work that is due at `now_ms` and `watermark`, without rows.

        The work is windows to complete or close and groups whose TTL has passed; with `release`,
        also withheld results.
        """
        context = self._context(now_ms, watermark)
        return self._apply(fold_due(self.program, self.state, context, release=release))

    def _context(self, now_ms: int, watermark: int | None) -> FoldContext:
        return FoldContext(self._order, self._rules, now_ms, watermark)

    @property
    def wakes_at(self) -> int | None:
        """The first processing time at which the state has work."""
        return self.state.next_timer(Clock.PROCESSING)

    def _apply(self, folded: FoldResult) -> FoldResult:
        checked = repeats_the_last_row(self._last_row, well_formed(folded.changelog))
        folded.changelog = list(checked)
        self.state.apply(folded.upserts)
        return folded

    def weigh(self, ranges: Iterable[Consolidation]) -> list[Sequence[object]]:
        """Return the keys, arguments, positions and weights of the projected rows, as columns."""
        keys: list[Key] = []
        arguments: list[Row] = []
        positions: list[int] = []
        weights: list[int] = []
        for consolidation in ranges:
            weighted = consolidation.consolidate(
                self._group_of, with_heads=self._rules.drop_early, keep_zeros=self._rules.ttl_ms > 0
            )
            for row, position, weight in zip(*weighted, strict=True):
                projected = self._projection(row)
                if projected is None:
                    continue
                keys.append(projected[0])
                arguments.append(projected[1])
                positions.append(position)
                weights.append(weight)
        columns = list(zip(*arguments, strict=True)) or [()] * len(self.plan.arguments)
        return [keys, *columns, positions, weights]

    def _last_row(self, key: Key) -> Row | None:
        group = self.state.groups([key])[0]
        return self.program.row(group)
