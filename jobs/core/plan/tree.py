"""The plan of a query: our own small tree, made from SQL by `query`, read by everything else.

    source columns ──► used columns ──► where ──► group expressions, argument expressions
                                                        │
                                           aggregates over arguments ──► result columns
                                                        │                     ▲
                                                        └──► having, computed ┘

A window is two of the group expressions: its bounds. Row expressions (where, group, arguments) are
evaluated by Spark as Columns; aggregates are folded by the generated code of `accumulators`, and
what is made of their values (HAVING, SUM(a) / COUNT(*)) is evaluated where they are folded. A plan
is a value: equal queries have equal plans.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import Field, dataclass, field, fields, is_dataclass
from typing import Any
from typing import Literal as OneOf

from schemas.types.sql_types import BIGINT, Kind, SqlType, timestamp

ArithmeticOp = OneOf["+", "-", "*", "/", "%"]
CompareOp = OneOf["=", "<>", "<", "<=", ">", ">="]
LogicalOp = OneOf["AND", "OR"]

# On fields that plans got later: left out of the fingerprint at their default, so that a plan of
# before keeps its own.
LATER = {"later": True}

MICROS_OF_MS = 1_000
BOUND_PRECISION = 3  # windows begin and end at whole milliseconds


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the source, by name."""

    name: str
    type: SqlType


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal; `value` is represented as `type` says (see schemas.types); None is NULL."""

    value: bool | int | float | str | bytes | None
    type: SqlType


@dataclass(frozen=True, slots=True)
class Cast:
    operand: Expression
    type: SqlType
    lenient: bool = False  # TRY_CAST: NULL where CAST would fail


@dataclass(frozen=True, slots=True)
class Arithmetic:
    op: ArithmeticOp
    left: Expression
    right: Expression
    type: SqlType


@dataclass(frozen=True, slots=True)
class Negate:
    operand: Expression
    type: SqlType


@dataclass(frozen=True, slots=True)
class Compare:
    op: CompareOp
    left: Expression
    right: Expression
    type: SqlType


@dataclass(frozen=True, slots=True)
class Logical:
    op: LogicalOp
    left: Expression
    right: Expression
    type: SqlType


@dataclass(frozen=True, slots=True)
class Not:
    operand: Expression
    type: SqlType


@dataclass(frozen=True, slots=True)
class IsNull:
    operand: Expression
    type: SqlType


@dataclass(frozen=True, slots=True)
class In:
    operand: Expression
    choices: tuple[Expression, ...]
    type: SqlType


@dataclass(frozen=True, slots=True)
class Like:
    operand: Expression
    pattern: str
    type: SqlType
    escape: str | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """CASE WHEN condition THEN value ... ELSE otherwise END; IF and NULLIF become this too."""

    branches: tuple[tuple[Expression, Expression], ...]
    otherwise: Expression | None
    type: SqlType


@dataclass(frozen=True, slots=True)
class Call:
    """A scalar function of the closed list in `query`, e.g. UPPER, COALESCE, SUBSTRING."""

    function: str
    arguments: tuple[Expression, ...]
    type: SqlType


@dataclass(frozen=True, slots=True)
class Window:
    """Windows of event time, all as long and aligned to 1970: each begins a slide after the one
    before, so that a row is in `size_ms // slide_ms` of them. TUMBLE slides by its size. A SESSION
    has a size of its gap, for each row by itself: see `sessions`."""

    function: OneOf["TUMBLE", "HOP", "SESSION"]
    time: Column
    size_ms: int
    slide_ms: int

    @property
    def bound_type(self) -> SqlType:
        """Of the kind of its time, in whole milliseconds."""
        if self.time.type.kind is Kind.BIGINT:
            return BIGINT
        return timestamp(BOUND_PRECISION, local_zone=self.time.type.kind is Kind.TIMESTAMP_LTZ)

    @property
    def of_a_row(self) -> int:
        """How many windows every row is in."""
        return self.size_ms // self.slide_ms

    @property
    def step_ms(self) -> int:
        """Windows begin at multiples of it."""
        return 1 if self.function == "SESSION" else self.slide_ms

    @property
    def unit(self) -> int:
        """What one millisecond is in values of the window's time and bounds."""
        return 1 if self.time.type.kind is Kind.BIGINT else MICROS_OF_MS


@dataclass(frozen=True, slots=True)
class WindowBound:
    """Where a window of the row begins or ends; of HOP a row has several, and becomes as many."""

    window: Window
    end: bool
    type: SqlType

    @property
    def name(self) -> str:
        return "window_end" if self.end else "window_start"


@dataclass(frozen=True, slots=True)
class Composite:
    """Several expressions as one ROW value, an argument of aggregates: what they order by, and
    last what they take. It is NULL where that last part is, or any, or never."""

    parts: tuple[Expression, ...]
    type: SqlType
    null_where: OneOf["last", "any", "never"] = "last"


@dataclass(frozen=True, slots=True)
class SetNumber:
    """Which of the grouping sets a row is for; with several it becomes as many."""

    type: SqlType


@dataclass(frozen=True, slots=True)
class KeyValue:
    """A column of the group's key, in an expression over the group's results."""

    index: int  # in Plan.group
    type: SqlType


@dataclass(frozen=True, slots=True)
class AggregateValue:
    """The value of an aggregate, in an expression over the group's results."""

    index: int  # in Plan.aggregates
    type: SqlType


Expression = (
    Column
    | Constant
    | Cast
    | Arithmetic
    | Negate
    | Compare
    | Logical
    | Not
    | IsNull
    | In
    | Like
    | Case
    | Call
    | WindowBound
    | Composite
    | SetNumber
    | KeyValue
    | AggregateValue
)


@dataclass(frozen=True, slots=True)
class Named:
    """An expression under the name of its column: a group column or an aggregate's argument."""

    name: str
    expression: Expression

    @property
    def type(self) -> SqlType:
        return self.expression.type


@dataclass(frozen=True, slots=True)
class Ordering:
    """A direction of an aggregate's ORDER BY; NULL is the least unless it says otherwise."""

    descending: bool = False
    nulls_first: bool = True


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One aggregate of the query. `argument` indexes Plan.arguments; None for COUNT(*).

    A FILTER (WHERE c) is already part of the argument: CASE WHEN c THEN x END. `order` has a
    direction for each part of the argument, where there is an ORDER BY.
    """

    function: str  # a name of accumulators.FUNCTIONS
    argument: int | None
    name: str
    type: SqlType
    distinct: bool = field(default=False, metadata=LATER)
    parameters: tuple[str | int, ...] = field(default=(), metadata=LATER)  # constants of the call
    order: tuple[Ordering, ...] = field(default=(), metadata=LATER)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a job computes, whatever brings the rows and wherever they go."""

    columns: tuple[Column, ...]  # declared by the source, in order
    used: tuple[Column, ...]  # those that the query reads; the rest is checked and let go
    where: Expression | None
    group: tuple[Named, ...]  # names are those of the result where the query selects them
    arguments: tuple[Named, ...]  # distinct arguments of aggregates; names unique
    aggregates: tuple[Aggregate, ...]
    output: tuple[str, ...]  # result columns in SELECT order: names from group and results
    # What is made of a group's key and aggregates when its result is: columns, and whether the
    # group has a row at all. Aggregates that only these need are not in the output.
    computed: tuple[Named, ...] = field(default=(), metadata=LATER)
    having: Expression | None = field(default=None, metadata=LATER)
    grouping_sets: int = field(default=1, metadata=LATER)  # how many
    # Of a job that keeps the last image of each row: the columns that tell one.
    primary_key: tuple[Column, ...] = field(default=(), metadata=LATER)

    @property
    def image(self) -> tuple[Column, ...]:
        """The columns that are read of a row: those of the query, then the rest of its key."""
        return (*self.used, *(column for column in self.primary_key if column not in self.used))

    @property
    def window(self) -> Window | None:
        """The windows of the query; both of their bounds are among the group columns."""
        bounds = (
            each.expression for each in self.group if isinstance(each.expression, WindowBound)
        )
        return next((bound.window for bound in bounds), None)

    @property
    def instants(self) -> int | None:
        """The argument under which the state of sessions keeps the instants of a key."""
        window = self.window
        if window is None or window.function != "SESSION":
            return None
        bound = WindowBound(window, False, window.bound_type)
        return next(i for i, each in enumerate(self.arguments) if each.expression == bound)

    @property
    def copies(self) -> int:
        """How many rows the projection makes of one that WHERE keeps: one for each window and
        each grouping set."""
        return self.grouping_sets * (1 if self.window is None else self.window.of_a_row)

    @property
    def results(self) -> tuple[tuple[str, SqlType], ...]:
        """The columns of a group's row behind its key, shown and published: name and type."""
        kept = self.kept
        return kept if not self.computes else tuple(each for each in kept if each[0] in self.output)

    @property
    def kept(self) -> tuple[tuple[str, SqlType], ...]:
        """The columns that the state keeps of a group's results: all aggregates, then what is
        computed from them."""
        aggregates = [(each.name, each.type) for each in self.aggregates]
        return (*aggregates, *((each.name, each.type) for each in self.computed))

    @property
    def computes(self) -> bool:
        """Whether a group's row is more than its key and its aggregates."""
        return bool(self.computed) or self.having is not None

    @property
    def hidden(self) -> tuple[str, ...]:
        """Group columns that the query does not select; they are part of the key all the same."""
        return tuple(column.name for column in self.group if column.name not in self.output)

    @property
    def fingerprint(self) -> str:
        """The same for equal plans, on every machine and in every process."""
        text = json.dumps(_canonical(self), ensure_ascii=True, separators=(",", ":"))
        return hashlib.sha256(text.encode("ascii")).hexdigest()


def _canonical(value: Any) -> Any:
    """A plan or a part of it as JSON: class names and fields in order, types as SQL spells them."""
    if isinstance(value, SqlType):
        return str(value)
    if is_dataclass(value):
        kept = [part for part in fields(value) if not _left_out(part, getattr(value, part.name))]
        return [type(value).__name__, *(_canonical(getattr(value, part.name)) for part in kept)]
    if isinstance(value, tuple):
        return [_canonical(part) for part in value]
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    return value


def _left_out(part: Field[Any], value: Any) -> bool:
    return "later" in part.metadata and value == part.default
