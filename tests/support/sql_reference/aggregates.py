"""Aggregates in docs/sql.md, made from the table of functions; a test runs each example."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from jobs.core.aggregates import FUNCTIONS, Distinction, Function, Reading
from jobs.core.plan.typing_rules import TypeProblem
from jobs.core.sql.aggregate_calls import BY_ARRIVAL, REFUSED
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
_SHOWN_TYPES = (INT, DOUBLE, decimal(10, 2), STRING, BOOLEAN, DATE)

_HEAD = """\
## Aggregates

Every aggregate is exact after every insert, update and delete, and the same however the stream was
cut into bundles. Those of one argument share what is remembered of it: numbers (cells), and where
it says so the multiset of its values, each with the number of times it is there.

- `AGG(x) FILTER (WHERE c)` takes the rows for which `c` is true, with every aggregate.
- `AGG(DISTINCT x)` takes each value once, where it says so. The cells of distinct values move when
  a value comes or goes, so that reading them costs nothing.
- NULL is left out, but by `COUNT(*)` and `ARRAY_AGG`. Without values a result is NULL, of COUNT 0.
- A value that was taken away more often than it was given counts for nothing until it is there.
- `ORDER BY` inside takes `ASC`, `DESC`, `NULLS FIRST` and `NULLS LAST`; NULL is the least, as in
  Flink. Rows that are equal in it come in the order of their values, in its last direction.
  `WITHIN GROUP (ORDER BY ...)` behind the call says the same.

An ARRAY is a list in the job's table and in JSON; in the format `canal-json`, where every value is
text, it is the text of that JSON.

The examples are over these rows, without GROUP BY:

"""


def aggregates_section() -> str:
    lines = [_HEAD.rstrip("\n"), ""]
    lines += _table([list(COLUMNS), *([_json(value) for value in row] for row in ROWS)])
    for function in FUNCTIONS.values():
        lines += ["", *_section(function)]
    lines += ["", "### Not possible", "", f"- {BY_ARRIVAL.format('FIRST_VALUE or LAST_VALUE')}."]
    lines += [f"- {reason}. Try `{instead}`." for reason, instead in REFUSED.values()]
    return "\n".join(lines) + "\n"


def _section(function: Function) -> Iterator[str]:
    yield f"### {function.name}"
    yield ""
    also = f" Also called {' and '.join(function.synonyms)}." if function.synonyms else ""
    yield f"{function.about}{also}"
    yield ""
    yield f"- Result: {_results(function)}"
    yield f"- DISTINCT: {_DISTINCT[function.distinction]}"
    yield f"- Cost: {_cost(function)}"
    yield f"- `{function.example}` is `{_json(function.gives)}`"


_DISTINCT = {
    Distinction.MATTERS: "takes each value once",
    Distinction.SAME: "may be said, and changes nothing",
    Distinction.REFUSED: "is refused",
}


def _cost(function: Function) -> str:
    cost = function.reading.cost
    if function.reading is Reading.CELLS and function.distinction is Distinction.MATTERS:
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
