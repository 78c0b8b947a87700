"""Evaluate whole numbers, decimals, moments and truth values as arrays of 64 bits.

    expression over columns ──► words, and which are not NULL
                            └─► NoVector: another node or type; a row could fail, or need more bits

Whoever catches NoVector evaluates the expression value by value, which is exact for all rows and
knows why one fails. So nothing here is rounded, and nothing overflows.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import eq, ge, gt, le, lt, ne
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.core.plan import tree
from jobs.core.plan.walk import can_fail
from jobs.edge.rows.word_columns import to_words, words_to_arrow
from schemas.types.sql_types import WORD_DIGITS_MAX, Kind, SqlType, integer_range

Words = np.ndarray[Any, np.dtype[np.int64]]
Valid = np.ndarray[Any, np.dtype[np.bool_]]

_LIMIT = 1 << 62  # of absolute values, so that a sum of two has room
_MOMENTS = (Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_LTZ)
_COMPARE: dict[str, Callable[[Any, Any], Any]]
_COMPARE = {"=": eq, "<>": ne, "<": lt, "<=": le, ">": gt, ">=": ge}


class NoVector(Exception):
    """The expression has to be evaluated value by value."""


class Vector(NamedTuple):
    words: Words
    valid: Valid


class Vectors:
    """Evaluates expressions over `count` rows; `read` gives the values of a part of one."""

    def __init__(self, count: int, read: Callable[[tree.Expression], pa.Array]) -> None:
        self._count = count
        self._read = read

    def values(self, expression: tree.Expression) -> pa.Array:
        """Return the values of an expression; raise NoVector if that is not possible."""
        words, valid = self._of(expression)
        words = np.ascontiguousarray(np.where(valid, words, 0))
        return words_to_arrow(expression.type, words, valid)

    def _of(self, part: tree.Expression) -> Vector:
        if not _is_word(part.type):
            raise NoVector
        match part:
            case tree.Constant():
                value = 0 if part.value is None else part.value
                assert isinstance(value, int)
                if abs(value) >= _LIMIT:
                    raise NoVector
                present = np.full(self._count, part.value is not None)
                return Vector(np.full(self._count, value, np.int64), present)
            case tree.Compare() if _is_word(part.left.type):
                return self._compare(part)
            case tree.Logical():
                return self._logical(part)
            case tree.Not():
                words, valid = self._of(part.operand)
                return Vector(1 - words, valid)
            case tree.IsNull() if _is_word(part.operand.type):
                return self._certain(~self._of(part.operand).valid)
            case tree.In() if _is_word(part.operand.type):
                return self._among(part)
            case tree.Like(operand=tree.Column(type=SqlType(kind=Kind.STRING))):
                return self._like(part)
            case tree.Case():
                return self._case(part)
            case tree.Call(function="COALESCE"):
                return self._coalesce(part)
            case tree.Arithmetic():
                return self._arithmetic(part)
            case tree.Cast() if (
                part.type.kind not in _MOMENTS and part.type.kind is not Kind.BOOLEAN
            ):
                return self._cast(part)
            case tree.Negate():
                operand = self._of(part.operand)
                _require(_largest(operand))
                return self._fit(Vector(-operand.words, operand.valid), part.type)
            case tree.Column():
                return self._load(part)
            case _:
                if can_fail(part):
                    raise NoVector
                return self._load(part)

    def _load(self, part: tree.Expression) -> Vector:
        if part.type.kind is Kind.DECIMAL and (part.type.precision or 0) > WORD_DIGITS_MAX:
            raise NoVector
        return self._to_vector(self._read(part), part.type)

    def _to_vector(self, values: pa.Array, kind: SqlType) -> Vector:
        words, valid = to_words(values, kind)
        return Vector(words, valid.astype(np.bool_))

    def _certain(self, truth: Valid) -> Vector:
        return Vector(truth.astype(np.int64), np.ones(self._count, np.bool_))

    def _compare(self, part: tree.Compare) -> Vector:
        if (part.left.type.scale or 0) != (part.right.type.scale or 0):
            raise NoVector
        left, right = self._of(part.left), self._of(part.right)
        truth = _COMPARE[part.op](left.words, right.words)
        return Vector(truth.astype(np.int64), left.valid & right.valid)

    def _logical(self, part: tree.Logical) -> Vector:
        decisive = int(part.op == "OR")
        left, right = self._of(part.left), self._of(part.right)
        decided = (left.valid & (left.words == decisive)) | (
            right.valid & (right.words == decisive)
        )
        words = np.where(decided, decisive, 1 - decisive)
        return Vector(words, decided | (left.valid & right.valid))

    def _among(self, part: tree.In) -> Vector:
        operand = self._of(part.operand)
        found, unknown = np.zeros(self._count, np.bool_), ~operand.valid
        for choice in part.choices:
            if (choice.type.scale or 0) != (part.operand.type.scale or 0):
                raise NoVector
            words, valid = self._of(choice)
            found |= operand.valid & valid & (words == operand.words)
            unknown |= ~valid
        return Vector(found.astype(np.int64), found | ~unknown)

    def _like(self, part: tree.Like) -> Vector:
        """Find a text at the beginning, at the end or anywhere; other patterns one by one."""
        match [] if part.escape or "_" in part.pattern else part.pattern.split("%"):
            case [text]:
                found = pc.equal(self._read(part.operand), text)
            case [text, ""]:
                found = pc.starts_with(self._read(part.operand), text)
            case ["", text]:
                found = pc.ends_with(self._read(part.operand), text)
            case ["", text, ""]:
                found = pc.match_substring(self._read(part.operand), text)
            case _:
                return self._load(part)
        return self._to_vector(found, part.type)

    def _case(self, part: tree.Case) -> Vector:
        otherwise = tree.Constant(None, part.type) if part.otherwise is None else part.otherwise
        words, valid = self._alike(otherwise, part.type)
        for when, then in reversed(part.branches):
            condition, value = self._of(when), self._alike(then, part.type)
            taken = condition.valid & (condition.words == 1)
            words = np.where(taken, value.words, words)
            valid = np.where(taken, value.valid, valid)
        return Vector(words, valid)

    def _coalesce(self, part: tree.Call) -> Vector:
        words, valid = self._alike(part.arguments[0], part.type)
        for argument in part.arguments[1:]:
            value = self._alike(argument, part.type)
            words = np.where(valid, words, value.words)
            valid = valid | value.valid
        return Vector(words, valid)

    def _alike(self, part: tree.Expression, kind: SqlType) -> Vector:
        """Return the values of a part whose words mean the same in the type of the whole."""
        if (part.type.scale or 0) != (kind.scale or 0):
            raise NoVector
        return self._of(part)

    def _arithmetic(self, part: tree.Arithmetic) -> Vector:
        if part.op in "/%" or not (part.type.integer or part.type.kind is Kind.DECIMAL):
            raise NoVector
        left, right = self._of(part.left), self._of(part.right)
        scales = part.left.type.scale or 0, part.right.type.scale or 0
        valid = left.valid & right.valid
        if part.op == "*":
            _require(_largest(left) * _largest(right))
            return self._rescale(Vector(left.words * right.words, valid), sum(scales), part.type)
        wide = max(scales)
        left, right = (
            _times(each, wide - s) for each, s in zip((left, right), scales, strict=True)
        )
        words = left.words + right.words if part.op == "+" else left.words - right.words
        return self._rescale(Vector(words, valid), wide, part.type)

    def _cast(self, part: tree.Cast) -> Vector:
        source = part.operand.type
        if not (source.integer or source.kind is Kind.DECIMAL) or part.lenient:
            raise NoVector
        return self._rescale(self._of(part.operand), source.scale or 0, part.type)

    def _rescale(self, value: Vector, scale: int, kind: SqlType) -> Vector:
        wanted = kind.scale or 0
        if wanted < scale:
            raise NoVector
        return self._fit(_times(value, wanted - scale), kind)

    def _fit(self, value: Vector, kind: SqlType) -> Vector:
        """Return the values if their type can hold all of them."""
        if kind.integer:
            low, high = integer_range(kind)
        else:
            high = 10 ** (kind.precision or 0) - 1
            low = -high
        words = value.words[value.valid]
        if len(words) and not low <= int(words.min()) <= int(words.max()) <= high:
            raise NoVector
        return value


def _is_word(kind: SqlType) -> bool:
    if kind.textual_time:
        return False
    return kind.integer or kind.kind in (Kind.BOOLEAN, Kind.DECIMAL, *_MOMENTS)


def _largest(value: Vector) -> int:
    """Return the largest absolute value of all words, those of NULLs too."""
    return max(abs(int(value.words.min(initial=0))), abs(int(value.words.max(initial=0))))


def _require(bound: int) -> None:
    if bound >= _LIMIT:
        raise NoVector


def _times(value: Vector, digits: int) -> Vector:
    _require(_largest(value) * 10**digits)
    return value if not digits else Vector(value.words * 10**digits, value.valid)
