"""Aggregates in docs/sql.md, made from the table of functions; a test runs each example."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from textwrap import wrap
from typing import Any, TypedDict

from jobs.core.aggregates import FUNCTIONS, Distinction, Function, ReadCost
from jobs.core.plan.typing_rules import TypeProblem
from jobs.core.values.change import Row
from schemas.types.sql_types import BOOLEAN, DATE, DOUBLE, INT, STRING, SqlType, array_of, decimal

# The rows that every example is over.
COLUMNS: dict[str, SqlType] = {"name": STRING, "cnt": INT, "day": INT, "sold": BOOLEAN}
ROWS: tuple[Row, ...] = (
    ("ant", 3, 1, True),
    ("bee", 5, 2, False),
    ("ant", 3, 3, True),
    ("cow", None, 4, None),
    ("bee", 8, 5, True),
)
_COLUMNS_MAX = 100


class _Words(TypedDict):
    break_long_words: bool
    break_on_hyphens: bool


_WHOLE_WORDS: _Words = {"break_long_words": False, "break_on_hyphens": False}
_SHOWN_TYPES = (INT, DOUBLE, decimal(10, 2), STRING, BOOLEAN, DATE)

_HEAD = """\
## Aggregates

Every aggregate is exact after every insert, update and delete, however the stream was cut into
bundles. Aggregates of one argument share its state: numbers (cells), and, where *Cost* says so, the
multiset of its values with their counts.

- `AGG(x) FILTER (WHERE c)` uses the rows for which `c` is true. Every aggregate has it.
- `AGG(DISTINCT x)` counts each value once. Its cells change when a value appears or disappears, so
  a result reads no values.
- Aggregates ignore NULL, except `COUNT(*)` and `ARRAY_AGG`. Without values the result is NULL (0
  for COUNT).
- A value that left more often than it came counts for nothing until it comes again.
- `ORDER BY` inside a call has `ASC`, `DESC`, `NULLS FIRST` and `NULLS LAST`; NULL is the least, as
  in Flink. Equal rows are ordered by their values, in its last direction.
  `WITHIN GROUP (ORDER BY ...)` after the call means the same.

An [aggregate class](aggregate-classes.md) of the operator is called like an aggregate,
by the name that `functions` in the spec gives it.

An ARRAY is a list in the job's table and in JSON. In the format `canal-json` every value is text,
so it is the text of that JSON.

The examples use these rows, without GROUP BY:

"""


def aggregates_section() -> str:
    lines = [_HEAD.rstrip("\n"), ""]
    lines += _table([list(COLUMNS), *([_json(value) for value in row] for row in ROWS)])
    for function in FUNCTIONS.values():
        lines += ["", *_section(function)]
    return "\n".join(lines) + "\n"


def _section(function: Function) -> Iterator[str]:
    yield f"### {function.name}"
    yield ""
    also = f" Also called {', '.join(function.synonyms)}." if function.synonyms else ""
    yield from wrap(f"{function.about}{also}", _COLUMNS_MAX, **_WHOLE_WORDS)
    yield ""
    yield f"- Result: {_results(function)}"
    yield f"- DISTINCT: {_DISTINCT[function.distinction]}"
    yield f"- Cost: {_cost(function)}"
    yield f"- `{function.example}` is `{_json(function.example_result)}`"


_DISTINCT = {
    Distinction.MATTERS: "counts each value once",
    Distinction.SAME: "allowed, without effect",
    Distinction.REFUSED: "refused",
}


def _cost(function: Function) -> str:
    cost = function.read_cost.cost
    if function.read_cost is ReadCost.CELLS and function.distinction is Distinction.MATTERS:
        cost += "; with DISTINCT also a multiset"
    return cost


def _results(function: Function) -> str:
    """The types of the results, alike ones together."""
    results: dict[SqlType, SqlType] = {}
    for argument in _SHOWN_TYPES:
        with suppress(TypeProblem):
            results[argument] = function.result(argument)
    if len(set(results.values())) == 1:
        return str(next(iter(results.values())))
    arguments: dict[str, list[str]] = {}
    for argument, result in results.items():
        own = {argument: "the argument's", array_of(argument): "an ARRAY of the argument's"}
        arguments.setdefault(own.get(result, str(result)), []).append(str(argument))
    if len(arguments) == 1:
        return next(iter(arguments))
    return ", ".join(f"{result} of {' and '.join(given)}" for result, given in arguments.items())


def _json(value: Any) -> str:
    value = list(value) if isinstance(value, tuple) else value
    return json.dumps(value, ensure_ascii=False)


def _table(rows: list[list[str]]) -> Iterator[str]:
    head, *others = rows
    yield f"| {' | '.join(head)} |"
    yield f"|{' --- |' * len(head)}"
    for row in others:
        yield f"| {' | '.join(row)} |"
