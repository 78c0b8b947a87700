"""Row expressions of a query: syntax trees to typed expressions, or the reason why not."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field

from sqlglot import exp

from jobs.core.plan.scalar_functions import FUNCTIONS, SYNONYMS
from jobs.core.plan.tree import Expression, Window
from jobs.core.plan.walk import parts
from jobs.core.sql import window_calls
from jobs.core.sql.aggregate_calls import AGGREGATES, is_call
from jobs.core.sql.dialect import Refusal
from jobs.core.sql.expression_nodes import READERS
from jobs.core.sql.problems import Reading, function_name, same_name, shown_name, sql_name, words
from jobs.core.sql.scope import Scope
from schemas.limits import EXPRESSION_DEPTH_MAX, EXPRESSION_NODES_MAX

NOT_DETERMINISTIC = words("""
    NOW RAND RANDOM RAND_INTEGER UUID CURRENT_DATE CURRENT_TIME CURRENT_TIMESTAMP LOCALTIME
    LOCALTIMESTAMP CURRENT_ROW_TIMESTAMP PROCTIME UNIX_TIMESTAMP CURRENT_WATERMARK SYSDATE
    GETDATE CURRENT_USER SESSION_USER MONOTONICALLY_INCREASING_ID
""")

GROUPINGS = ("GROUPING", "GROUPING_ID")
_LAST_DIGIT = "its last digit may differ between machines, and a retraction would miss its row"
_REGEXP = "a regular expression may take for ever on one row"
WHY_NOT: dict[str, tuple[str, str | None]] = {
    **dict.fromkeys(
        words("SIN COS TAN ASIN ACOS ATAN ATAN2 SINH COSH TANH COT"), (_LAST_DIGIT, None)
    ),
    **dict.fromkeys(
        words("REGEXP REGEXP_EXTRACT REGEXP_REPLACE REGEXP_LIKE REGEXP_COUNT RLIKE SIMILAR_TO"),
        (_REGEXP, "LIKE, REPLACE, SPLIT_INDEX or TRANSLATE"),
    ),
    "I_LIKE": ("compare in one case", "LOWER(s) LIKE 'a%'"),
    "ILIKE": ("compare in one case", "LOWER(s) LIKE 'a%'"),
    "INITCAP": ("engines do not agree where a word begins", None),
    "DATE_ADD": ("write the interval", "d + INTERVAL '1' DAY"),
    "DATEDIFF": ("write TIMESTAMPDIFF", "TIMESTAMPDIFF(DAY, t, u)"),
}


@dataclass
class RowReader(Reading):
    """Reads row expressions, within the bounds of depth and size."""

    window: Window | None = None  # known once WHERE was read, which comes before it
    depths: dict[int, tuple[Expression, int, int]] = field(default_factory=dict)

    def row(self, node: exp.Expr, scope: Scope, where: str, depth: int = 0) -> Expression:
        """A syntax tree as a typed expression; `where` says what it is part of."""
        if depth > EXPRESSION_DEPTH_MAX:
            raise self._too_large(node)

        def read(inner: exp.Expr) -> Expression:
            return self.row(inner, scope, where, depth + 1)

        if isinstance(node, exp.Column):
            return self._column(node, scope)
        if isinstance(node, exp.Paren):
            self.only(node, "this")
            return read(node.this)
        if is_call(node):
            if where in ("SELECT", "HAVING"):
                return self.aggregate_value(node, scope)
            raise self._misplaced_aggregate(node, where)
        if function_name(node) in GROUPINGS and where not in ("SELECT", "HAVING"):
            raise self.refused(
                f"GROUPING is only possible in SELECT and HAVING, not in {where}", node
            )
        reader = READERS.get(type(node))
        if reader is None:
            raise self.unknown(node)
        with self.at(node):
            expression = reader(self, node, read)
        self._measure(expression, node)
        return expression

    def aggregate_value(self, node: exp.Expr, scope: Scope) -> Expression:
        """An aggregate inside an expression of the result."""
        raise NotImplementedError

    def _column(self, node: exp.Column, scope: Scope) -> Expression:
        if not isinstance(node.this, exp.Identifier):
            raise self.refused("`.*` is not supported: name the columns", node)
        self.only(node, "this", "table")
        qualifier = node.table
        if qualifier and not any(same_name(each, qualifier) for each in scope.qualifiers):
            known = ", ".join(f"`{each}`" for each in scope.qualifiers) or "none"
            raise self.refused(f"unknown table `{shown_name(qualifier)}`; known: {known}", node)
        found = scope.find(node.name)
        if found is not None:
            return found
        if node.name.upper() in NOT_DETERMINISTIC:
            raise self._not_deterministic(node.name.upper(), node)
        alike = [each for each in scope.names if same_name(each, node.name)]
        if alike:
            choices = " and ".join(f"`{each}`" for each in alike)
            message = f"`{node.name}` could be {choices}: write it in the same case"
            raise self.refused(message, node)
        if node.name.lower() in window_calls.NAMES:
            raise self.refused(window_calls.NO_BOUND.format(node.name.lower()), node)
        close = difflib.get_close_matches(node.name, list(scope.names), 1)
        shown = ", ".join(list(scope.names)[:10])
        hint = close[0] if close else f"one of {shown}" if shown else None
        raise self.refused(f"unknown column `{shown_name(node.name)}`", node, hint)

    def _measure(self, expression: Expression, node: exp.Expr) -> None:
        """Bound depth and size of what was made: a derived column may be used, and so written
        into the query, many times."""
        known = self.depths.get(id(expression))
        if known is None:
            inner = [self.size(each) for each in parts(expression)]
            depth = 1 + max((each[0] for each in inner), default=0)
            size = 1 + sum(each[1] for each in inner)
            # Keeping the expression keeps its id from being used again.
            self.depths[id(expression)] = known = (expression, depth, size)
        if known[1] > EXPRESSION_DEPTH_MAX or known[2] > EXPRESSION_NODES_MAX:
            raise self._too_large(node)

    def size(self, expression: Expression) -> tuple[int, int]:
        """Depth and size; readers make at most a few levels at once, so this ends soon."""
        known = self.depths.get(id(expression))
        if known is None:
            inner = [self.size(each) for each in parts(expression)]
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
        return self.refused(message, node, "IN (...) for long chains of OR")

    def _misplaced_aggregate(self, node: exp.Expr, where: str) -> Refusal:
        if where in AGGREGATES:
            return self.refused("an aggregate of an aggregate is not possible", node)
        return self.refused(f"an aggregate is not possible in {where}", node)

    def unknown(self, node: exp.Expr) -> Refusal:
        name = function_name(node) or sql_name(type(node))
        if name in NOT_DETERMINISTIC:
            return self._not_deterministic(name, node)
        if isinstance(node, exp.Window):
            return self.refused("OVER (...) is not supported: a job has no order of rows", node)
        if isinstance(node, exp.Subquery | exp.Select | exp.Exists):
            return self.refused("a subquery is only possible in FROM", node)
        if name in WHY_NOT:
            return self.refused(
                f"{name} is not supported: {WHY_NOT[name][0]}", node, WHY_NOT[name][1]
            )
        if isinstance(node, exp.Anonymous):
            known_names = [*FUNCTIONS, *SYNONYMS, *AGGREGATES, "IF", "NULLIF", "MOD"]
            close = difflib.get_close_matches(name, known_names, 1)
            hint = close[0] if close else None
            return self.refused(f"unknown function {shown_name(name)}", node, hint)
        return self.refused(f"{name} is not supported", node)

    def _not_deterministic(self, name: str, node: exp.Expr) -> Refusal:
        message = f"{name} is not deterministic: a retraction would not find the row it takes back"
        return self.refused(message, node)
