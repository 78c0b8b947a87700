"""The bounds of windows: TIMESTAMP(3) in Flink, and here of the type of the windows' column.

DATE_FORMAT(window_end, 'HH:mm') over ms BIGINT
    ──►  DATE_FORMAT(CAST(TO_TIMESTAMP_LTZ(window_end, 3) AS TIMESTAMP(3)), 'HH:mm')
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from jobs.core.sql.problems import function_name
from jobs.core.sql.window_calls import NAMES, WINDOWS, WORDS
from jobs.migrating.dialect import call, cast
from jobs.migrating.relations import Relation


def write_bounds(relation: Relation) -> Callable[[exp.Expr], exp.Expr]:
    """Return what makes a bound the TIMESTAMP(3) that it is in Flink.

    A session's stays as it is: it changes with each row, so no expression may be over it."""

    def change(tree: exp.Expr) -> exp.Expr:
        kind = bound_kind(tree, relation)
        if not kind or is_of_session(tree, relation):
            return tree
        return cast(call("TO_TIMESTAMP_LTZ", tree, 3) if kind == "BIGINT" else tree, "TIMESTAMP(3)")

    return change


def is_of_session(bound: exp.Expr, relation: Relation) -> bool:
    window = relation.window
    by_table = window is not None and window.function == "SESSION"
    return by_table or function_name(bound).startswith("SESSION_")


def bound_kind(tree: exp.Expr, relation: Relation) -> str:
    """Return the type of a window's bound; an empty text if it is Flink's, or no bound."""
    source = relation.source
    is_column = isinstance(tree, exp.Column) and tree.name in NAMES and relation.window is not None
    if not (is_column or function_name(tree) in WORDS - {*WINDOWS}):
        return ""
    if source is None or source.times is None or source.times.column is None:
        return ""
    kind = source.columns.get(source.times.column, "")
    return "" if kind.startswith("TIMESTAMP(") else kind
