"""Row expressions as Spark Columns, the judge of our own: a value and a failure for each row.

    plan Expression ──build──► value: the Column; NULL if the row fails
                           └─► failure: why the row fails, or NULL; None if no row can fail

Nothing here throws while Spark runs: each operation that can fail uses a try form of Spark, and its
failure is a text beside the value. So one bad row goes to quarantine and the other rows are
folded. A part that SQL does not evaluate (an untaken branch, the right side of a false AND) reports
no failure. Spark gets typed values and column names only; it never parses a user's text. The
session's time zone is UTC.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

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
    Window,
    WindowBound,
)
from jobs.core.plan.typing_rules import like_pattern
from jobs.core.plan.walk import node_can_fail
from jobs.core.rows.projection import SHOWN_VALUE_CHARACTERS_MAX, shorten_sql
from jobs.core.rows.windows import START, WINDOWS_FROM_MS, WINDOWS_TO_MS, no_window_reasons
from jobs.core.sql.grouping_sets import SET_COLUMN, split_set_key
from jobs.edge.spark.column_types import spark_type
from schemas.types.sql_types import DOUBLE, STRING, Kind
from tests.support.spark_columns.functions import FUNCTIONS
from tests.support.spark_columns.values import (
    calculate,
    constant_value,
    convert,
    named_column,
    negate,
)


def add_windows(frame: DataFrame, window: Window) -> DataFrame:
    """Repeat each row for each of its windows, with the window's start in epoch milliseconds."""
    return frame.withColumn(START, _starts(window))


def build_bound(bound: WindowBound) -> tuple[SparkColumn, SparkColumn | None]:
    """Return a bound of a row's window; for a start, also why the row has no window."""
    start = F.col(f"`{START}`")
    if bound.end:
        return _moment(start + F.lit(bound.window.size_ms), bound.window), None
    is_null, out_of_range = map(F.lit, no_window_reasons(bound.window))
    reason = F.when(_time(bound.window).isNull(), is_null).otherwise(out_of_range)
    return _moment(start, bound.window), F.when(start.isNull(), reason)


def _starts(window: Window) -> SparkColumn:
    """Return the start of each of a row's windows, exploded; NULL if the row has none."""
    size, slide = F.lit(window.size_ms).cast("long"), F.lit(window.slide_ms).cast("long")
    time, offset = _milliseconds(window), F.lit(window.offset_ms).cast("long")
    # Compute the bounds only if they cannot overflow.
    step = F.lit(1).cast("long") if window.function == "SESSION" else slide
    aligned = time - F.pmod(time - offset, step)
    last = F.when(time.between(WINDOWS_FROM_MS, WINDOWS_TO_MS), aligned)
    first = last + slide - size
    exists = (first >= WINDOWS_FROM_MS) & (last + size <= WINDOWS_TO_MS)
    if window.windows_per_row == 1:
        return F.when(exists, last)
    return F.explode_outer(F.when(exists, F.sequence(first, last, slide)))


def _time(window: Window) -> SparkColumn:
    return F.col(f"`{window.time.name}`")


def _milliseconds(window: Window) -> SparkColumn:
    """Return the time of a row in milliseconds, rounded down."""
    if window.time.type.kind is Kind.BIGINT:
        return _time(window)
    return F.unix_millis(_time(window).cast("timestamp"))


def _moment(milliseconds: SparkColumn, window: Window) -> SparkColumn:
    kind = window.time.type.kind
    if kind is Kind.BIGINT:
        return milliseconds
    moment = F.timestamp_millis(milliseconds)
    return moment.cast("timestamp_ntz") if kind is Kind.TIMESTAMP else moment


@dataclass(frozen=True, slots=True)
class Evaluated:
    """A row expression in Spark: its value, and why a row fails; None if no row can fail."""

    value: SparkColumn
    failure: SparkColumn | None = None


def project(frame: DataFrame, plan: Plan, carry: Sequence[str]) -> DataFrame:
    """Return the rows to fold: carried columns, g0.., a0.., and `failure` if the plan can fail.

    A source row becomes one row per window and grouping set. Rows that fail pass the WHERE.
    """
    failures = []
    if plan.where is not None:
        where = build(plan.where)
        failures.append(where.failure)
        fails = F.lit(False) if where.failure is None else where.failure.isNotNull()
        frame = frame.where(fails | where.value)
    if plan.grouping_sets > 1:
        numbers = F.array(*(F.lit(number) for number in range(plan.grouping_sets)))
        frame = frame.withColumn(SET_COLUMN, F.explode(numbers))
    if plan.window is not None:
        frame = add_windows(frame, plan.window)
    columns = [named_column(name) for name in carry]
    for letter, named in (("g", plan.group), ("a", plan.arguments)):
        for index, each in enumerate(named):
            evaluated = build(each.expression)
            failures.append(evaluated.failure)
            value = evaluated.value
            if not isinstance(each.expression, Column):
                # Spark's types and ours agree; if they ever differ, the plan declares ours.
                value = value.try_cast(spark_type(each.type))
            columns.append(value.alias(f"{letter}{index}"))
    failure = _coalesce(*failures)
    if failure is not None:
        columns.append(failure.alias("failure"))
    return frame.select(*columns)


def build(expression: Expression) -> Evaluated:
    """Return an expression as Columns; the query parser limits the depth of the recursion."""
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
            return Evaluated(value, _coalesce(left.failure, right.failure))
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
            # Spark's LIKE tries all positions of the parts between two %.
            pattern = like_pattern(expression.pattern, expression.escape)
            return Evaluated(operand.value.rlike(rf"(?s)\A{pattern}\z"), operand.failure)
        case Case():
            return _build_case(expression)
        case Call():
            return _build_call(expression)
        case Composite():
            return _build_composite(expression)
        case WindowBound():
            return Evaluated(*build_bound(expression))
        case SetNumber():
            return Evaluated(named_column(SET_COLUMN))
        case KeyValue() | AggregateValue():
            raise AssertionError("the fold task evaluates the results of a group")


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
    return Evaluated(value, _coalesce(*(part.failure for part in parts)))


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


def _coalesce(*failures: SparkColumn | None) -> SparkColumn | None:
    """Return the first failure of parts that are all evaluated."""
    real = [failure for failure in failures if failure is not None]
    return F.coalesce(*real) if len(real) > 1 else real[0] if real else None


def _first_in_order(steps: Sequence[tuple[SparkColumn, SparkColumn | None]]) -> SparkColumn | None:
    """Return the failure of steps evaluated in order: (condition that ends them, failure then).

    A part that may fail is a step of its own, which ends the evaluation if the part fails.
    """
    if all(failure is None for _, failure in steps):
        return None
    chosen: SparkColumn | None = None
    for ends, failure in steps:
        then = _no_failure() if failure is None else failure
        chosen = F.when(ends, then) if chosen is None else chosen.when(ends, then)
    return chosen


def _steps_of(part: Evaluated) -> list[tuple[SparkColumn, SparkColumn | None]]:
    """Return the step of a part that may fail, or no step."""
    return [] if part.failure is None else [(part.failure.isNotNull(), part.failure)]


# --- one node each -------------------------------------------------------------------------------


def _build_cast(cast: Cast) -> Evaluated:
    operand = build(cast.operand)
    source, target = cast.operand.type, cast.type
    value = convert(operand.value, source, target)
    if not node_can_fail(cast):
        return Evaluated(value, operand.failure)
    if source.kind is Kind.BINARY:
        reason = F.lit(f"{shorten_sql(cast)}: the bytes are not UTF-8")
    else:
        shown = F.substring(operand.value.try_cast("string"), 1, SHOWN_VALUE_CHARACTERS_MAX)
        wrong = f"is no {target}" if source == STRING else f"does not fit {target}"
        reason = F.concat(F.lit(f"{shorten_sql(cast)}: '"), shown, F.lit(f"' {wrong}"))
    own = F.when(operand.value.isNotNull() & value.isNull(), reason)
    return Evaluated(value, _coalesce(operand.failure, own))


def _build_arithmetic(arithmetic: Arithmetic) -> Evaluated:
    left, right = build(arithmetic.left), build(arithmetic.right)
    value = calculate(arithmetic, left.value, right.value)
    failure = _coalesce(left.failure, right.failure)
    if node_can_fail(arithmetic):
        reason = F.lit(f"{shorten_sql(arithmetic)}: out of the range of {arithmetic.type}")
        if arithmetic.op in ("/", "%"):
            zero = F.lit(f"{shorten_sql(arithmetic)}: division by zero")
            reason = F.when(right.value == F.lit(0), zero).otherwise(reason)
        given = left.value.isNotNull() & right.value.isNotNull()
        failure = _coalesce(failure, F.when(given & value.isNull(), reason))
    return Evaluated(value, failure)


def _build_negation(negation: Negate) -> Evaluated:
    operand = build(negation.operand)
    value = negate(operand.value, negation.type)
    return Evaluated(value, _coalesce(operand.failure, _overflow(negation, [operand.value], value)))


def _overflow(
    expression: Expression, operands: Sequence[SparkColumn], value: SparkColumn
) -> SparkColumn | None:
    """Return the failure of a node that has all of its operands but no value."""
    if not node_can_fail(expression):
        return None
    what = f"out of the range of {expression.type}"
    if isinstance(expression, Call) and FUNCTIONS_OF_CORE[expression.function].can_fail:
        what = (
            "there is no such value" if expression.type != DOUBLE else "not defined, or too large"
        )
    missing = value.isNull()
    for operand in operands:
        missing = missing & operand.isNotNull()
    return F.when(missing, F.lit(f"{shorten_sql(expression)}: {what}"))


def _build_logical(logical: Logical) -> Evaluated:
    """Build AND or OR, which evaluate the right side only if the left side does not decide."""
    left, right = build(logical.left), build(logical.right)
    if logical.op == "AND":
        value, open_still = left.value & right.value, left.value.isNull() | left.value
    else:
        value, open_still = left.value | right.value, left.value.isNull() | ~left.value
    later = None if right.failure is None else F.when(open_still, right.failure)
    return Evaluated(value, _coalesce(left.failure, later))


def _build_in(contained: In) -> Evaluated:
    operand = build(contained.operand)
    choices = [build(choice) for choice in contained.choices]
    value = operand.value.isin(*(choice.value for choice in choices))
    if all(choice.failure is None for choice in choices):
        return Evaluated(value, operand.failure)
    steps = _steps_of(operand)
    for choice in choices:
        steps += _steps_of(choice)
        steps.append((operand.value == choice.value, None))
    return Evaluated(value, _first_in_order(steps))


def _build_case(case: Case) -> Evaluated:
    value: SparkColumn | None = None
    steps: list[tuple[SparkColumn, SparkColumn | None]] = []
    for when, then in case.branches:
        condition, result = build(when), build(then)
        if value is None:
            value = F.when(condition.value, result.value)
        else:
            value = value.when(condition.value, result.value)
        steps += _steps_of(condition)
        steps.append((condition.value, result.failure))
    assert value is not None
    if case.otherwise is not None:
        otherwise = build(case.otherwise)
        value = value.otherwise(otherwise.value)
        steps += _steps_of(otherwise)
    return Evaluated(value, _first_in_order(steps))


def _grouping(call: Call) -> SparkColumn:
    """Return a number with a bit per key column; the bit is 1 if the row's set lacks the column."""
    value = F.lit(0).cast("long")
    for argument in call.arguments:
        bit = F.lit(0)
        if (found := split_set_key(argument)) is not None:
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
            steps += _steps_of(argument)
            steps.append((argument.value.isNotNull(), None))
        return Evaluated(F.coalesce(*values), _first_in_order(steps))
    value = FUNCTIONS[call.function](call, values)
    failure = _coalesce(*(argument.failure for argument in arguments))
    return Evaluated(value, _coalesce(failure, _overflow(call, values, value)))
