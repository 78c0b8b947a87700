"""Which queries fold in arrays, and how the words of a group hold their cells and extremes.

    plan ─► cells      SUM: two words, COUNT: one     [rows, cell, cell, .., extreme, extreme, ..]
            multisets  MIN, MAX, COUNT(DISTINCT x)                           has, value
            results    which words each aggregate is computed from

Such a query groups by numbers, texts and times, and aggregates 64-bit values with SUM, COUNT, AVG,
MIN and MAX. Nothing in it depends on time: no TTL, no closing windows, no withheld results.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jobs.core.aggregates.count import Count
from jobs.core.aggregates.distinct import Distinct, Present
from jobs.core.aggregates.extremes import Multiset
from jobs.core.aggregates.functions import FUNCTIONS
from jobs.core.aggregates.interfaces import Accumulator
from jobs.core.aggregates.sum import Sum
from jobs.core.fold.program import Program, needed_accumulators
from jobs.core.fold.rules import Rules
from jobs.core.kernels.codes import (
    COUNT,
    DISTINCT_COUNT,
    DISTINCT_SUM,
    MULTISET_BITS,
    NO_WORD,
    PRESENT,
    ROWS,
    SUM,
)
from jobs.core.plan.tree import Aggregate, Plan
from schemas.types.sql_types import WORD_DIGITS_MAX, Kind, SqlType

MULTISETS_MAX = 1 << MULTISET_BITS
FOLDED = {"COUNT", "SUM", "AVG", "MIN", "MAX", "ANY_VALUE"}

_WORDS = (Kind.BOOLEAN, Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_LTZ)
_TEXTS = (Kind.STRING, Kind.BINARY)


@dataclass(frozen=True, slots=True)
class ResultRule:
    """How an aggregate's value follows from the words of a group, counted from its rows."""

    function: str  # COUNT, SUM, AVG or EXTREME
    type: SqlType
    argument: SqlType | None
    word: int
    count_word: int = NO_WORD  # of the values that a SUM or AVG has


@dataclass(frozen=True, slots=True)
class ColumnarQuery:
    """A query as the kernels take it; words count from the rows of a group."""

    cells: tuple[tuple[int, int, int, int], ...]  # kind, argument, word, multiset
    multisets: tuple[tuple[int, int, int], ...]  # argument, words of the largest and the smallest
    cell_words: tuple[tuple[int, int], ...]  # of each cell of the program; rows first
    results: tuple[ResultRule, ...]
    values: int  # words of a group: rows, cells and extremes

    @property
    def width(self) -> int:
        """The words of a group in the table."""
        return ROWS + self.values + len(self.multisets)

    @property
    def cell_array(self) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
        return np.array(self.cells, np.int64).reshape(-1, 4)

    @property
    def multiset_array(self) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
        return np.array(self.multisets, np.int64).reshape(-1, 3)


def is_word(sql_type: SqlType) -> bool:
    """Return whether values of this type are integers of at most 64 bits."""
    if sql_type.kind is Kind.DECIMAL:
        return (sql_type.precision or 0) <= WORD_DIGITS_MAX
    return sql_type.integer or (sql_type.kind in _WORDS and not sql_type.textual_time)


def is_text(sql_type: SqlType) -> bool:
    """Return whether values of this type are bytes, one after another."""
    return sql_type.kind in _TEXTS or sql_type.textual_time


def why_not_columnar(plan: Plan, rules: Rules) -> str | None:
    """Return why a query does not fold in arrays; None if it does."""
    if rules.ttl_ms or rules.refresh or rules.withhold or rules.closing is not None:
        return "its results depend on time"
    if rules.drop_early:
        return "it drops early retractions"
    if plan.has_computed:
        return "it has HAVING or expressions over aggregates"
    if plan.instants_argument is not None:
        return "its windows are sessions"
    if plan.group and plan.empty_keys:
        return "its grouping set () has a row without input"
    for group in plan.group:
        if not is_word(group.type) and not is_text(group.type):
            return f"group column {group.name} is {group.type}"
    for aggregate in plan.aggregates:
        if aggregate.function not in FOLDED or aggregate.parameters or aggregate.order:
            return f"{aggregate.name} is {aggregate.function}"
        if aggregate.argument is None:
            continue
        argument = plan.arguments[aggregate.argument].type
        counts_rows = aggregate.function == "COUNT" and not aggregate.distinct
        if not counts_rows and not is_word(argument):
            return f"{aggregate.name} is over {argument}"
    return "it has too many arguments" if len(plan.arguments) > MULTISETS_MAX else None


def columnar_query(program: Program) -> ColumnarQuery:
    """Return the query of a program that folds in arrays."""
    return _Layout(program).query()


class _Layout:
    """Gives each cell and each extreme its words."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.words = 1  # after the rows
        self.of: dict[tuple[int, Accumulator], int] = {}
        self.cells: list[tuple[int, int, int, int]] = []
        self.cell_words = [(COUNT, 0)]

    def query(self) -> ColumnarQuery:
        program, plan = self.program, self.program.plan
        for argument, accumulators in enumerate(program.arguments):
            for accumulator in accumulators:
                self._add(argument, accumulator)
        extremes: dict[tuple[int, bool], int] = {}
        for extreme in program.extremes:
            extremes[extreme] = self._take(2)

        def word_of(argument: int, largest: bool) -> int:
            word = extremes.get((argument, largest))
            return NO_WORD if word is None else ROWS + word

        multisets = tuple(
            (argument, word_of(argument, True), word_of(argument, False))
            for argument in program.multisets
        )
        results = tuple(self._result(plan, each, extremes) for each in plan.aggregates)
        return ColumnarQuery(
            tuple(self.cells), multisets, tuple(self.cell_words), results, self.words
        )

    def _take(self, words: int) -> int:
        first = self.words
        self.words += words
        return first

    def _add(self, argument: int, accumulator: Accumulator) -> None:
        if isinstance(accumulator, Multiset):
            return
        kind = _kind(accumulator)
        word = self._take(2 if kind in (SUM, DISTINCT_SUM) else 1)
        self.of[argument, accumulator] = word
        multisets = self.program.multisets
        multiset = multisets.index(argument) if argument in multisets else NO_WORD
        self.cells.append((kind, argument, ROWS + word, multiset))
        self.cell_words.append((kind, word))

    def _result(
        self, plan: Plan, aggregate: Aggregate, extremes: dict[tuple[int, bool], int]
    ) -> ResultRule:
        if aggregate.argument is None:
            return ResultRule("COUNT", aggregate.type, None, 0)
        argument = plan.arguments[aggregate.argument]
        function = FUNCTIONS[aggregate.function]
        if function.extreme:
            word = extremes[aggregate.argument, function.extreme == "largest"]
            return ResultRule("EXTREME", aggregate.type, argument.type, word)
        needed = needed_accumulators(plan, aggregate)
        words = [self.of[aggregate.argument, each] for each in needed]
        return ResultRule(aggregate.function, aggregate.type, argument.type, *words)


def _kind(accumulator: Accumulator) -> int:
    if isinstance(accumulator, Count):
        return COUNT
    if isinstance(accumulator, Sum):
        return SUM
    if isinstance(accumulator, Present):
        return PRESENT
    if isinstance(accumulator, Distinct) and isinstance(accumulator.inner, Count):
        return DISTINCT_COUNT
    assert isinstance(accumulator, Distinct) and isinstance(accumulator.inner, Sum)
    return DISTINCT_SUM
