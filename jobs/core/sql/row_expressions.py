"""Read row expressions of a query: turn syntax trees into typed expressions, or refuse them."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field

from sqlglot import exp

from jobs.core.plan.tree import Expression, Window
from jobs.core.plan.walk import operands
from jobs.core.sql import refused_names, window_calls
from jobs.core.sql.aggregate_calls import AGGREGATES, called_function, is_call
from jobs.core.sql.dialect import Refusal
from jobs.core.sql.expression_nodes import KNOWN, READERS
from jobs.core.sql.problems import (
    INSTEAD_OF_SUBQUERY,
    SUBQUERY,
    ProblemReporter,
    function_name,
    printable_name,
    same_name,
    split_words,
    sql_name,
)
from jobs.core.sql.scope import Scope
from schemas.limits import EXPRESSION_DEPTH_MAX, EXPRESSION_NODES_MAX

NOT_DETERMINISTIC = split_words("""
    NOW RAND RANDOM RAND_INTEGER UUID CURRENT_DATE CURRENT_TIME CURRENT_TIMESTAMP LOCALTIME
    LOCALTIMESTAMP CURRENT_ROW_TIMESTAMP PROCTIME UNIX_TIMESTAMP CURRENT_WATERMARK SYSDATE
    GETDATE CURRENT_USER SESSION_USER MONOTONICALLY_INCREASING_ID
""")

GROUPINGS = ("GROUPING", "GROUPING_ID")


@dataclass
class RowReader(ProblemReporter):
    """Reads row expressions, and limits their depth and size."""

    window: Window | None = None  # set after WHERE, which cannot use it
    depths: dict[int, tuple[Expression, int, int]] = field(default_factory=dict)

    def read_row(self, node: exp.Expr, scope: Scope, where: str, depth: int = 0) -> Expression:
        """Return a syntax tree as a typed expression; `where` names the clause that contains it."""
        if depth > EXPRESSION_DEPTH_MAX:
            raise self._too_large(node)

        def read(inner: exp.Expr) -> Expression:
            return self.read_row(inner, scope, where, depth + 1)

        if isinstance(node, exp.Column):
            return self._read_column(node, scope)
        if isinstance(node, exp.Paren):
            self.require_only(node, "this")
            return read(node.this)
        if is_call(node):
            if where in ("SELECT", "HAVING"):
                return self.read_aggregate_value(node, scope)
            raise self._misplaced_aggregate(node, where)
        if function_name(node) in GROUPINGS and where not in ("SELECT", "HAVING"):
            raise self.refusal(
                f"GROUPING is only possible in SELECT and HAVING, not in {where}", node
            )
        reader = READERS.get(type(node))
        if reader is None:
            raise self.make_refusal(node)
        with self.blame(node):
            expression = reader(self, node, read)
        self._measure(expression, node)
        return expression

    def read_aggregate_value(self, node: exp.Expr, scope: Scope) -> Expression:
        """Return an aggregate inside an expression of the result."""
        raise NotImplementedError

    def _read_column(self, node: exp.Column, scope: Scope) -> Expression:
        if not isinstance(node.this, exp.Identifier):
            raise self.refusal("`.*` is not supported: name the columns", node)
        self.require_only(node, "this", "table")
        qualifier = node.table
        within = scope.of_table(qualifier)
        if within is None:
            known = ", ".join(f"`{each}`" for each in scope.qualifiers) or "none"
            raise self.refusal(f"unknown table `{printable_name(qualifier)}`; known: {known}", node)
        found = within.lookup(node.name)
        if found is not None:
            return found
        if not qualifier and node.name.lower() in scope.ambiguous:
            tables = [each for each in scope.tables if scope.spelling(node.name, each)]
            message = f"`{node.name}` is a column of {' and '.join(f'`{t}`' for t in tables)}"
            raise self.refusal(message, node, f"{tables[0]}.{node.name}")
        if not qualifier and scope.outer is not None and scope.outer.knows(node.name):
            return self._read_column(node, scope.outer)
        scope = within
        if node.name.upper() in NOT_DETERMINISTIC:
            raise self._not_deterministic(node.name.upper(), node)
        alike = [each for each in scope.names if same_name(each, node.name)]
        if alike:
            choices = " and ".join(f"`{each}`" for each in alike)
            message = f"`{node.name}` could be {choices}: use the exact case"
            raise self.refusal(message, node)
        if node.name.lower() in window_calls.NAMES:
            raise self.refusal(window_calls.NO_BOUND.format(node.name.lower()), node)
        close = difflib.get_close_matches(node.name, list(scope.names), 1)
        # Names that nobody can write are sort keys (see first_rows).
        shown = ", ".join([each for each in scope.names if each.isidentifier()][:10])
        hint = close[0] if close else f"one of {shown}" if shown else None
        raise self.refusal(f"unknown column `{printable_name(node.name)}`", node, hint)

    def _measure(self, expression: Expression, node: exp.Expr) -> None:
        """Refuse an expression that is too deep or too large.

        A derived column is inserted at each use, so a short query can become large."""
        known = self.depths.get(id(expression))
        if known is None:
            inner = [self.size(each) for each in operands(expression)]
            depth = 1 + max((each[0] for each in inner), default=0)
            size = 1 + sum(each[1] for each in inner)
            # The reference to the expression prevents a reuse of its id.
            self.depths[id(expression)] = known = (expression, depth, size)
        if known[1] > EXPRESSION_DEPTH_MAX or known[2] > EXPRESSION_NODES_MAX:
            raise self._too_large(node)

    def size(self, expression: Expression) -> tuple[int, int]:
        """Return depth and size; a reader adds few levels at once, so the recursion is short."""
        known = self.depths.get(id(expression))
        if known is None:
            inner = [self.size(each) for each in operands(expression)]
            return 1 + max((each[0] for each in inner), default=0), 1 + sum(
                each[1] for each in inner
            )
        return known[1], known[2]

    # -- refusals --

    def _too_large(self, node: exp.Expr) -> Refusal:
        message = (
            f"this expression is deeper than {EXPRESSION_DEPTH_MAX} levels "
            f"or larger than {EXPRESSION_NODES_MAX} parts"
        )
        return self.refusal(message, node, "IN (...) for long chains of OR")

    def _misplaced_aggregate(self, node: exp.Expr, where: str) -> Refusal:
        if where in AGGREGATES:
            return self.refusal("an aggregate inside an aggregate is not possible", node)
        return self.refusal(f"an aggregate is not possible in {where}", node)

    def require_known(self, node: exp.Expr) -> None:
        """Refuse a call of an unknown function before anything else that is wrong with it."""
        call = called_function(node)
        if isinstance(call, exp.Anonymous) and not (is_call(call) or function_name(call) in KNOWN):
            raise self.make_refusal(call)

    def make_refusal(self, node: exp.Expr) -> Refusal:
        name = function_name(node) or sql_name(type(node))
        if name in NOT_DETERMINISTIC:
            return self._not_deterministic(name, node)
        if isinstance(node, exp.Window):
            message = "OVER (...) is not supported: a job has no order of rows"
            return self.refusal(message, node, _instead_of_window(node))
        if isinstance(node, exp.Subquery | exp.Select | exp.Exists):
            return self.refusal(SUBQUERY, node, INSTEAD_OF_SUBQUERY)
        if (refused := refused_names.FUNCTIONS.get(name)) is not None:
            return self.refusal(f"{name} is not supported: {refused.reason}", node, refused.instead)
        if isinstance(node, exp.Anonymous):
            # Only a misspelling: a name that is a little alike may give another number.
            close = difflib.get_close_matches(name, [*KNOWN, *AGGREGATES], 1, cutoff=0.8)
            hint = close[0] if close else None
            return self.refusal(f"unknown function {printable_name(name)}", node, hint)
        return self.refusal(f"{name} is not supported", node)

    def _not_deterministic(self, name: str, node: exp.Expr) -> Refusal:
        message = f"{name} is not deterministic, so a retraction would not match its row"
        return self.refusal(message, node)


def _instead_of_window(node: exp.Window) -> str:
    """Return what to write instead: a Top-N is an aggregate of each of its groups."""
    order, groups = node.args.get("order"), node.args.get("partition_by") or []
    by = None if order is None else order.expressions[0]
    if function_name(node.this) != "ROW_NUMBER" or by is None or not by.args.get("desc"):
        return "an aggregate with GROUP BY, such as MAX"
    value = by.this.sql()
    grouped = ", ".join(each.sql() for each in groups)
    grouped = f" with GROUP BY {grouped}" if grouped else ""
    return f"TOP_K({value}, n){grouped}, and ARG_MAX(x, {value}) for the x of the greatest"
