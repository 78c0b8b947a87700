"""Bundle: the signed rows between two cuts; Tally: one query's groups, kept in memory.

    signed rows ──► Bundle ──► one Consolidation a partition ──► Tally: project, gather, fold
                                                                            │
                                           laws ◄── changelog rows ◄────────┴──► MemoryState

The pipeline does the same with a task for each range and a hot state for each bucket. This is the
way of replays, of simulations and of the tests that prove the core.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from operator import itemgetter

from jobs.core.fold.fold import Folded
from jobs.core.fold.laws import repeats_the_last_row, well_formed
from jobs.core.fold.program import Program
from jobs.core.fold.rules import FOR_EVER, Rules
from jobs.core.fold.sessions import fold_of, fold_time_of
from jobs.core.fold.state import Key, MemoryState
from jobs.core.fold.timers import Clock
from jobs.core.plan.tree import Column, Composite, Constant, Expression, Plan
from jobs.core.rows.consolidate import Consolidation
from jobs.core.values.change import Row, Value
from jobs.core.values.order_key import encoder

Projected = tuple[Key, Row]  # a row's group and the arguments of the aggregates
Projection = Callable[[Row], Projected | None]  # of a row of used columns; None: WHERE removes it


class Bundle:
    """Signed rows in the order that gives them their positions: (partition, offset, index)."""

    __slots__ = ("_partitions", "rows")

    def __init__(self) -> None:
        self.rows = 0
        self._partitions: dict[int, list[tuple[int, tuple[int, Row]]]] = {}

    def add(self, partition: int, offset: int, changes: Iterable[tuple[int, Row]]) -> None:
        """Take changes of one message, or the part of them that this bundle holds."""
        arrived = self._partitions.setdefault(partition, [])
        before = len(arrived)
        arrived.extend((offset, change) for change in changes)
        self.rows += len(arrived) - before

    def ranges(self) -> list[Consolidation]:
        """What the map tasks of an epoch would ship: one consolidation a partition, in order."""
        consolidations = []
        for ordinal, partition in enumerate(sorted(self._partitions)):
            arrived = sorted(self._partitions[partition], key=itemgetter(0))
            consolidation = Consolidation(ordinal)
            consolidation.add(change for _, change in arrived)
            consolidations.append(consolidation)
        return consolidations


class Tally:
    """One query over a MemoryState: folds bundle after bundle, with the laws on.

    With windows it takes opened rows, and the plan is the one before they are opened.
    `group_of` is what a map task knows of a row's group (see Consolidation.weighted); with or
    without it the outcome is the same.
    """

    def __init__(
        self,
        plan: Plan,
        projection: Projection,
        *,
        rules: Rules = FOR_EVER,
        group_of: Callable[[Row], Hashable] | None = None,
    ) -> None:
        self.plan = plan
        self.program = Program(plan)
        self.state = MemoryState()
        self._projection = projection
        self._rules = rules
        self._group_of = group_of
        self._order = encoder(tuple(column.type for column in plan.group))

    def fold(
        self, ranges: Iterable[Consolidation], now_ms: int = 0, watermark: int | None = None
    ) -> Folded:
        """Fold one bundle; its changes are in the state when this returns."""
        deltas = self.program.gather(*self._weighted(ranges))
        return self._applied(
            fold_of(self.program)(
                self.program, self.state, deltas,
                order=self._order, rules=self._rules, now_ms=now_ms, watermark=watermark,
            )
        )  # fmt: skip

    def pass_time(
        self, now_ms: int = 0, *, release: bool = False, watermark: int | None = None
    ) -> Folded:
        """Fold what time has made due: windows that `watermark` completes or closes, groups whose
        TTL has passed; with `release`, results that were withheld."""
        return self._applied(
            fold_time_of(self.program)(
                self.program, self.state,
                order=self._order, rules=self._rules, now_ms=now_ms, release=release,
                watermark=watermark,
            )
        )  # fmt: skip

    @property
    def wakes_at(self) -> int | None:
        """When the next group may expire."""
        return self.state.next_timer(Clock.PROCESSING)

    def _applied(self, folded: Folded) -> Folded:
        checked = repeats_the_last_row(self._last_row, well_formed(folded.changelog))
        folded.changelog = list(checked)
        self.state.apply(folded.upserts)
        return folded

    def _weighted(self, ranges: Iterable[Consolidation]) -> list[Sequence[object]]:
        """Keys, argument values, positions and weights of the projected rows, side by side."""
        keys: list[Key] = []
        arguments: list[Row] = []
        positions: list[int] = []
        weights: list[int] = []
        for consolidation in ranges:
            weighted = consolidation.weighted(self._group_of)
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


def plain_projection(plan: Plan) -> Projection | None:
    """The projection of a plan that only picks columns and constants, for which nobody needs
    Spark; None where a row expression has to be evaluated."""
    expressions = [named.expression for named in (*plan.group, *plan.arguments)]
    if plan.where is not None or not all(map(_is_plain, expressions)):
        return None
    places = {column.name: place for place, column in enumerate(plan.used)}
    group = [_picked(named.expression, places) for named in plan.group]
    arguments = [_picked(named.expression, places) for named in plan.arguments]

    def projection(row: Row) -> Projected:
        return tuple([pick(row) for pick in group]), tuple([pick(row) for pick in arguments])

    return projection


def _is_plain(expression: Expression) -> bool:
    if isinstance(expression, Composite):
        return all(map(_is_plain, expression.parts))
    return isinstance(expression, Column | Constant)


def _picked(expression: Expression, places: dict[str, int]) -> Callable[[Row], Value]:
    if isinstance(expression, Column):
        return itemgetter(places[expression.name])
    if isinstance(expression, Composite):
        parts = [_picked(part, places) for part in expression.parts]
        needed = {"last": slice(-1, None), "any": slice(None), "never": slice(0)}
        looked_at = needed[expression.null_where]

        def together(row: Row) -> Value:
            values = tuple([pick(row) for pick in parts])
            return None if None in values[looked_at] else values

        return together
    assert isinstance(expression, Constant)
    value = expression.value
    return lambda row: value
