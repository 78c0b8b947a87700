"""Expressions: the plan's row expressions as Spark Columns, with the failures of rows beside them.

    plan Expression ──build──► value: the Column, NULL where something failed
                           └─► failure: why the row fails, NULL where it does not; None: never

Nothing here throws while Spark runs: every operation that can fail is one of Spark's try forms, and
a failure is a text of its own beside the value, so that one bad row goes to quarantine and the
others go on. A part that SQL would not evaluate (an untaken branch, the right side of a false AND)
reports no failure. Only typed values and names of columns reach Spark; no text of a user is ever
parsed by it. The session's time zone is UTC.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from jobs.core.plan.scalar_functions import FUNCTIONS as FUNCTIONS_OF_CORE
from jobs.core.plan.tree import (
    AggregateValue,
    Arithmetic,
    Call,
    Case,
    Cast,
    Column,
    Compare,
    Composite,
    Constant,
    Expression,
    In,
    IsNull,
    KeyValue,
    Like,
    Logical,
    Negate,
    Not,
    Plan,
    SetNumber,
    WindowBound,
)
from jobs.core.plan.typing_rules import like_pattern
from jobs.core.plan.walk import fails_itself, plan_fails
from jobs.core.sql.grouping_sets import SET, in_sets
from jobs.core.sql.printer import expression_sql
from jobs.edge.spark.expression_values import (
    calculated,
    constant_value,
    converted,
    named_column,
    negated,
    spark_type,
)
from jobs.edge.spark.scalar_functions import FUNCTIONS
from jobs.edge.spark.window_columns import bound_column, with_windows
from schemas.types.sql_types import DOUBLE, STRING, Kind

SHOWN_SQL_CHARACTERS_MAX = 200
SHOWN_VALUE_CHARACTERS_MAX = 100


@dataclass(frozen=True, slots=True)
class Evaluated:
    """A row expression in Spark: what it gives, and why a row fails (None: it cannot)."""

    value: SparkColumn
    failure: SparkColumn | None = None


def fallible(plan: Plan) -> bool:
    """Whether `project` gives a failure column."""
    return plan_fails(plan)


def project(
    frame: DataFrame, plan: Plan, carry: Sequence[str] = (), keep: SparkColumn | None = None
) -> DataFrame:
    """Source rows to the rows that are folded: carried columns, g0.., a0.., and `failure` where
    the plan is fallible. Rows that fail pass the WHERE, so that they are seen; so do rows that
    `keep` is true for, which are no rows of the source. Of windows that hop and of grouping sets a
    row becomes several."""
    application = frame.sparkSession.sparkContext.applicationId
    passes, columns = _projection(plan, tuple(carry), application)
    if passes is not None:
        frame = frame.where(passes if keep is None else keep | passes)
    if plan.grouping_sets > 1:
        frame = with_sets(frame, plan.grouping_sets, keep)
    if plan.window is not None:
        frame = with_windows(frame, plan.window)
    return frame.select(*columns)


@lru_cache(maxsize=64)
def _projection(
    plan: Plan, carry: tuple[str, ...], application: str
) -> tuple[SparkColumn | None, list[SparkColumn]]:
    """Columns belong to no frame: they are built once for a plan and a Spark application, because
    each of their nodes is a call to the JVM (0.3 s for a dozen expressions, every epoch)."""
    failures = []
    passes = None
    if plan.where is not None:
        where = build(plan.where)
        failures.append(where.failure)
        passes = where.value
        if where.failure is not None:
            passes = where.failure.isNotNull() | where.value
    columns = [named_column(name) for name in carry]
    for letter, named in (("g", plan.group), ("a", plan.arguments)):
        for index, each in enumerate(named):
            evaluated = build(each.expression)
            failures.append(evaluated.failure)
            value = evaluated.value
            if not isinstance(each.expression, Column):
                # Spark's typing and ours agree; where they ever do not, ours is what is declared.
                value = value.try_cast(spark_type(each.type))
            columns.append(value.alias(f"{letter}{index}"))
    failure = _first(*failures)
    if failure is not None:
        columns.append(failure.alias("failure"))
    return passes, columns


def build(expression: Expression) -> Evaluated:
    """An expression as Columns; recursion ends at the depth that the query parser allows."""
    match expression:
        case Column():
            return Evaluated(named_column(expression.name))
        case Constant():
            return Evaluated(constant_value(expression))
        case Cast():
            return _build_cast(expression)
        case Arithmetic():
            return _build_arithmetic(expression)
        case Negate():
            return _build_negation(expression)
        case Compare():
            left, right = build(expression.left), build(expression.right)
            value = _COMPARE[expression.op](left.value, right.value)
            return Evaluated(value, _first(left.failure, right.failure))
        case Logical():
            return _build_logical(expression)
        case Not():
            operand = build(expression.operand)
            return Evaluated(~operand.value, operand.failure)
        case IsNull():
            operand = build(expression.operand)
            return Evaluated(operand.value.isNull(), operand.failure)
        case In():
            return _build_in(expression)
        case Like():
            operand = build(expression.operand)
            # Spark's own LIKE tries every way to place the parts between two %.
            pattern = like_pattern(expression.pattern, expression.escape)
            return Evaluated(operand.value.rlike(rf"(?s)\A{pattern}\z"), operand.failure)
        case Case():
            return _build_case(expression)
        case Call():
            return _build_call(expression)
        case Composite():
            return _build_composite(expression)
        case WindowBound():
            return Evaluated(*bound_column(expression))
        case SetNumber():
            return Evaluated(named_column(SET))
        case KeyValue() | AggregateValue():
            raise AssertionError("results of a group are evaluated where it is folded")


def _build_composite(composite: Composite) -> Evaluated:
    parts = [build(part) for part in composite.parts]
    fields = [
        part.value.try_cast(spark_type(kind)).alias(name)
        for part, kind, name in zip(
            parts, composite.type.items, composite.type.item_names, strict=True
        )
    ]
    value = F.struct(*fields)
    needed = {"last": parts[-1:], "any": parts, "never": []}[composite.null_where]
    for part in needed:
        value = F.when(part.value.isNotNull(), value)
    return Evaluated(value, _first(*(part.failure for part in parts)))


_COMPARE: dict[str, Callable[[SparkColumn, SparkColumn], SparkColumn]] = {
    "=": lambda left, right: left == right,
    "<>": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}


def _no_failure() -> SparkColumn:
    return F.lit(None).cast(T.StringType())


def _first(*failures: SparkColumn | None) -> SparkColumn | None:
    """The first failure of several that are all evaluated."""
    real = [failure for failure in failures if failure is not None]
    return F.coalesce(*real) if len(real) > 1 else real[0] if real else None


def _in_turn(steps: Sequence[tuple[SparkColumn, SparkColumn | None]]) -> SparkColumn | None:
    """The failure of parts evaluated in turn: each step is (this is where it ends, failure then).

    A step whose failure is its own condition is a part that has to be evaluated on the way.
    """
    if all(failure is None for _, failure in steps):
        return None
    chosen: SparkColumn | None = None
    for ends, failure in steps:
        then = _no_failure() if failure is None else failure
        chosen = F.when(ends, then) if chosen is None else chosen.when(ends, then)
    return chosen


def _evaluated_on_the_way(part: Evaluated) -> list[tuple[SparkColumn, SparkColumn | None]]:
    return [] if part.failure is None else [(part.failure.isNotNull(), part.failure)]


def _text(expression: Expression) -> str:
    text = expression_sql(expression)
    if len(text) <= SHOWN_SQL_CHARACTERS_MAX:
        return text
    return text[:SHOWN_SQL_CHARACTERS_MAX] + "…"


# --- one node each -------------------------------------------------------------------------------


def _build_cast(cast: Cast) -> Evaluated:
    operand = build(cast.operand)
    source, target = cast.operand.type, cast.type
    value = converted(operand.value, source, target)
    if not fails_itself(cast):
        return Evaluated(value, operand.failure)
    if source.kind is Kind.BINARY:
        reason = F.lit(f"{_text(cast)}: the bytes are no UTF-8 text")
    else:
        shown = F.substring(operand.value.try_cast("string"), 1, SHOWN_VALUE_CHARACTERS_MAX)
        wrong = f"is no {target}" if source == STRING else f"does not fit {target}"
        reason = F.concat(F.lit(f"{_text(cast)}: '"), shown, F.lit(f"' {wrong}"))
    own = F.when(operand.value.isNotNull() & value.isNull(), reason)
    return Evaluated(value, _first(operand.failure, own))


def _build_arithmetic(arithmetic: Arithmetic) -> Evaluated:
    left, right = build(arithmetic.left), build(arithmetic.right)
    value = calculated(arithmetic, left.value, right.value)
    failure = _first(left.failure, right.failure)
    if fails_itself(arithmetic):
        reason = F.lit(f"{_text(arithmetic)}: out of the range of {arithmetic.type}")
        if arithmetic.op in ("/", "%"):
            zero = F.lit(f"{_text(arithmetic)}: division by zero")
            reason = F.when(right.value == F.lit(0), zero).otherwise(reason)
        given = left.value.isNotNull() & right.value.isNotNull()
        failure = _first(failure, F.when(given & value.isNull(), reason))
    return Evaluated(value, failure)


def _build_negation(negation: Negate) -> Evaluated:
    operand = build(negation.operand)
    value = negated(operand.value, negation.type)
    return Evaluated(value, _first(operand.failure, _overflow(negation, [operand.value], value)))


def _overflow(
    expression: Expression, operands: Sequence[SparkColumn], value: SparkColumn
) -> SparkColumn | None:
    """The failure of a node that has no value although it has all of its operands."""
    if not fails_itself(expression):
        return None
    what = f"out of the range of {expression.type}"
    if isinstance(expression, Call) and FUNCTIONS_OF_CORE[expression.function].fails:
        what = (
            "there is no such value" if expression.type != DOUBLE else "not defined, or too large"
        )
    missing = value.isNull()
    for operand in operands:
        missing = missing & operand.isNotNull()
    return F.when(missing, F.lit(f"{_text(expression)}: {what}"))


def _build_logical(logical: Logical) -> Evaluated:
    """AND and OR look at the right side only where the left one does not decide."""
    left, right = build(logical.left), build(logical.right)
    if logical.op == "AND":
        value, open_still = left.value & right.value, left.value.isNull() | left.value
    else:
        value, open_still = left.value | right.value, left.value.isNull() | ~left.value
    later = None if right.failure is None else F.when(open_still, right.failure)
    return Evaluated(value, _first(left.failure, later))


def _build_in(contained: In) -> Evaluated:
    operand = build(contained.operand)
    choices = [build(choice) for choice in contained.choices]
    value = operand.value.isin(*(choice.value for choice in choices))
    if all(choice.failure is None for choice in choices):
        return Evaluated(value, operand.failure)
    steps = _evaluated_on_the_way(operand)
    for choice in choices:
        steps += _evaluated_on_the_way(choice)
        steps.append((operand.value == choice.value, None))
    return Evaluated(value, _in_turn(steps))


def _build_case(case: Case) -> Evaluated:
    value: SparkColumn | None = None
    steps: list[tuple[SparkColumn, SparkColumn | None]] = []
    for when, then in case.branches:
        condition, result = build(when), build(then)
        if value is None:
            value = F.when(condition.value, result.value)
        else:
            value = value.when(condition.value, result.value)
        steps += _evaluated_on_the_way(condition)
        steps.append((condition.value, result.failure))
    assert value is not None
    if case.otherwise is not None:
        otherwise = build(case.otherwise)
        value = value.otherwise(otherwise.value)
        steps += _evaluated_on_the_way(otherwise)
    return Evaluated(value, _in_turn(steps))


def with_sets(frame: DataFrame, count: int, keep: SparkColumn | None) -> DataFrame:
    """The frame's rows once for each grouping set, with its number; what is no row stays one."""
    numbers = F.array(*(F.lit(number) for number in range(count)))
    if keep is not None:
        numbers = F.when(keep, F.array(F.lit(None).cast("int"))).otherwise(numbers)
    return frame.withColumn(SET, F.explode(numbers))


def _grouping(call: Call) -> SparkColumn:
    """A bit for each column of the key, 1 where the row's set is without it."""
    value = F.lit(0).cast("long")
    for argument in call.arguments:
        bit = F.lit(0)
        if (found := in_sets(argument)) is not None:
            bit = F.when(build(found[0]).value, F.lit(0)).otherwise(F.lit(1))
        value = value * F.lit(2) + bit
    return value


def _build_call(call: Call) -> Evaluated:
    arguments = [build(argument) for argument in call.arguments]
    values = [argument.value for argument in arguments]
    if call.function == "GROUPING":
        return Evaluated(_grouping(call))
    if call.function == "COALESCE":
        steps: list[tuple[SparkColumn, SparkColumn | None]] = []
        for argument in arguments:
            steps += _evaluated_on_the_way(argument)
            steps.append((argument.value.isNotNull(), None))
        return Evaluated(F.coalesce(*values), _in_turn(steps))
    value = FUNCTIONS[call.function](call, values)
    failure = _first(*(argument.failure for argument in arguments))
    return Evaluated(value, _first(failure, _overflow(call, values, value)))


__all__ = ["Evaluated", "build", "fallible", "project", "spark_type"]
