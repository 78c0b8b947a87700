"""Results and changelog of many groups at once, from their words before and after.

    words ─compute_results─► a column for each aggregate ─┐
    words before and after ───────────────────────────────┴─find_changes─► +I -U +U -D

A value beyond its type is NULL, and counts as a misfit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from jobs.core.fold.columnar.query import ResultRule
from jobs.core.fold.emission import CASES, WITH_ROW_AFTER
from jobs.core.values.change import Op
from jobs.core.values.exact_numbers import divide_half_up, divide_truncating
from schemas.types.sql_types import DECIMAL_PRECISION_MAX, Kind, SqlType, integer_range

Array = np.ndarray[Any, Any]

OPS = tuple(Op)
_OPS_OF_CASES = np.array([[*map(OPS.index, case), 0, 0][:2] for case in CASES])
_SIZES = np.array(list(map(len, CASES)))
_WITH_ROW_AFTER = np.array([op in WITH_ROW_AFTER for op in OPS])
_WORD_MASK = (1 << 64) - 1
_LOWEST = -(1 << 63)


class ResultColumn(NamedTuple):
    """The values of one aggregate: 64-bit words, and high words for decimals of 128 bits."""

    type: SqlType
    low: Array
    high: Array | None
    valid: Array
    misfits: Array  # whether a value is beyond its type

    def differs(self, other: ResultColumn) -> Array:
        """Return where the values of two columns differ; a NULL has words of 0."""
        differs: Array = (self.low != other.low) | (self.valid != other.valid)
        if self.high is not None:
            differs |= self.high != other.high
        return differs

    def choose(self, other: ResultColumn, other_where: Array, rows: Array) -> ResultColumn:
        """Return the values at `rows`: of the other column where that is said."""

        def choose(one: Array, another: Array) -> Array:
            return np.where(other_where, another[rows], one[rows])

        high = None
        if self.high is not None and other.high is not None:
            high = choose(self.high, other.high)
        return ResultColumn(
            self.type,
            choose(self.low, other.low),
            high,
            choose(self.valid, other.valid),
            choose(self.misfits, other.misfits),
        )

    def mask(self, where: Array) -> ResultColumn:
        """Return the values, and NULL elsewhere."""
        return _column(self.type, self.low, self.high, self.valid & where)


class Changes(NamedTuple):
    """The rows of a changelog."""

    groups: Array  # whose row
    ops: Array  # indexes in OPS
    new: Array  # whether it has the values after


def compute_results(rules: Sequence[ResultRule], words: Array) -> list[ResultColumn]:
    """Return the values of each aggregate."""
    return [_compute(rule, words) for rule in rules]


def find_changes(
    old: Sequence[ResultColumn], new: Sequence[ResultColumn], existed: Array, exists: Array
) -> Changes:
    """Return the changelog rows of groups, of which `existed` had a row and `exists` have one."""
    differs = np.zeros(len(existed), bool)
    for before, after in zip(old, new, strict=True):
        differs |= before.differs(after)
    cases = np.where(existed & exists & ~differs, 0, 2 * existed + exists)
    counts = _SIZES[cases]
    groups = np.repeat(np.arange(len(existed)), counts)
    index = np.arange(len(groups)) - np.repeat(np.cumsum(counts) - counts, counts)
    ops = _OPS_OF_CASES[cases[groups], index]
    return Changes(groups, ops, _WITH_ROW_AFTER[ops])


def _compute(rule: ResultRule, words: Array) -> ResultColumn:
    low = words[:, rule.word]
    if rule.function == "COUNT":
        return _column(rule.type, low, None, np.ones(len(words), bool))
    if rule.function == "EXTREME":
        return _column(rule.type, words[:, rule.word + 1], None, low != 0)
    high_half, low_half, count = low, words[:, rule.word + 1], words[:, rule.count_word]
    if rule.function == "SUM" and rule.type.kind is Kind.DECIMAL:
        low = (high_half << 32) | low_half
        return _column(rule.type, low, high_half >> 32, count != 0)
    valid = count != 0
    fits = (high_half >= -(1 << 31)) & (high_half < 1 << 31)
    total = (high_half << 32) | low_half
    if rule.function == "SUM":
        lowest, highest = integer_range(rule.type)
        fits &= (total >= lowest) & (total <= highest)
        return _column(rule.type, total, None, valid & fits, valid & ~fits)
    if rule.type.kind is Kind.DECIMAL:
        column = _column(rule.type, total, None, np.zeros(len(words), bool))
        return _average_exactly(rule, words, column, valid)
    plain = valid & fits & (total != _LOWEST)
    divisor = np.where(plain, count, 1)
    quotient = np.abs(total) // np.abs(divisor)
    quotient = np.where((total < 0) != (divisor < 0), -quotient, quotient)
    lowest, highest = integer_range(rule.type)
    fits = (quotient >= lowest) & (quotient <= highest)
    column = _column(rule.type, quotient, None, plain & fits, plain & ~fits)
    return _average_exactly(rule, words, column, valid & ~plain)


def _average_exactly(
    rule: ResultRule, words: Array, column: ResultColumn, where: Array
) -> ResultColumn:
    """Return the column with the averages of some groups computed as Python's integers."""
    low, valid, misfits = column.low.copy(), column.valid.copy(), column.misfits.copy()
    decimal = rule.type.kind is Kind.DECIMAL
    high = np.zeros_like(low) if decimal else None
    if decimal:
        assert rule.argument is not None
        shift = 10 ** ((rule.type.scale or 0) - (rule.argument.scale or 0))
        highest = 10 ** (rule.type.precision or DECIMAL_PRECISION_MAX) - 1
        lowest = -highest
    else:
        lowest, highest = integer_range(rule.type)
    for at in np.flatnonzero(where).tolist():
        total = (int(words[at, rule.word]) << 32) + int(words[at, rule.word + 1])
        count = int(words[at, rule.count_word])
        exact = divide_half_up(total * shift, count) if decimal else divide_truncating(total, count)
        valid[at] = lowest <= exact <= highest
        misfits[at] = not valid[at]
        if valid[at]:
            word = exact & _WORD_MASK
            low[at] = word - (1 << 64) if word >> 63 else word
            if high is not None:
                high[at] = exact >> 64
    return ResultColumn(rule.type, low, high, valid, misfits)


def _column(
    sql_type: SqlType, low: Array, high: Array | None, valid: Array, misfits: Array | None = None
) -> ResultColumn:
    """Return a column whose NULLs have words of 0."""
    return ResultColumn(
        sql_type,
        np.where(valid, low, 0),
        None if high is None else np.where(valid, high, 0),
        valid,
        np.zeros(len(valid), bool) if misfits is None else misfits,
    )
