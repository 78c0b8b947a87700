"""The plan of a query: a small tree of our own, which jobs.core.sql builds from SQL.

    source columns ──► used columns ──► where ──► group expressions, argument expressions
                                                        │
                                           aggregates over arguments ──► result columns
                                                        │                     ▲
                                                        └──► having, computed ┘

With a join the source columns are those of `relation`, a tree:

    scan of orders AS o ──────► o.id, o.customer_id ─┐
    scan of customers AS c ──► c.id, c.region ───────┴─ join o.customer_id = c.id ─► o.id, c.region

A window is two of the group expressions, its bounds. Row expressions (where, group, arguments) are
evaluated where rows are decoded. Generated code folds the aggregates (jobs.core.fold.program). The
fold task also evaluates expressions over their values (HAVING, SUM(a) / COUNT(*)). A plan is a
value: equal queries have equal plans.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import Field, dataclass, field, fields, is_dataclass
from typing import Any
from typing import Literal as OneOf

from jobs.core.values.change import Row
from schemas.types.sql_types import BIGINT, Kind, SqlType, timestamp

ArithmeticOp = OneOf["+", "-", "*", "/", "%"]
CompareOp = OneOf["=", "<>", "<", "<=", ">", ">="]
LogicalOp = OneOf["AND", "OR"]
WindowFunction = OneOf["TUMBLE", "HOP", "CUMULATE", "SESSION"]

# Marks fields added later. The fingerprint omits them at their default, so that older plans keep
# their fingerprint.
LATER = {"later": True}

MICROS_OF_MS = 1_000
BOUND_PRECISION = 3  # windows start and end at whole milliseconds


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the source, by name."""

    name: str
    type: SqlType


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal; schemas.types.sql_types says how `value` represents `type`; None is NULL."""

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
    """CASE WHEN condition THEN value ... ELSE otherwise END; also IF and NULLIF."""

    branches: tuple[tuple[Expression, Expression], ...]
    otherwise: Expression | None
    type: SqlType


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a scalar function (see `scalar_functions`), e.g. UPPER, COALESCE, SUBSTRING."""

    function: str
    arguments: tuple[Expression, ...]
    type: SqlType


@dataclass(frozen=True, slots=True)
class Window:
    """Windows of event time, aligned to 1970 plus an offset.

    A window ends one slide after the previous one, so a row is in `size_ms // slide_ms` windows.
    TUMBLE slides by its size. For SESSION the size is the gap (see jobs.core.fold.sessions).
    Windows of CUMULATE begin at multiples of the size; a row is in those that end after it."""

    function: WindowFunction
    time: Column
    size_ms: int
    slide_ms: int
    offset_ms: int = field(default=0, metadata=LATER)  # below the slide; CUMULATE: the size

    @property
    def bound_type(self) -> SqlType:
        """The type of its bounds: the kind of its time, in whole milliseconds."""
        if self.time.type.kind is Kind.BIGINT:
            return BIGINT
        return timestamp(BOUND_PRECISION, local_zone=self.time.type.kind is Kind.TIMESTAMP_LTZ)

    @property
    def windows_per_row(self) -> int:
        """The number of windows that contain a row; for CUMULATE, the greatest number."""
        return self.size_ms // self.slide_ms

    def find_ends(self, times_ms: Any) -> tuple[Any, Any]:
        """Return the first and the last end of the windows of a time, or of an array of times."""
        step = 1 if self.function == "SESSION" else self.slide_ms
        whole = self.size_ms if self.function == "CUMULATE" else step
        since = times_ms - self.offset_ms
        first = times_ms - since % step + self.slide_ms
        return first, times_ms - since % whole + self.size_ms

    def find_starts(self, ends: Any, last_end: Any) -> Any:
        """Return the starts of windows with these ends; all are of rows with this last end."""
        return (last_end if self.function == "CUMULATE" else ends) - self.size_ms

    @property
    def unit(self) -> int:
        """One millisecond in values of the window's time and bounds."""
        return 1 if self.time.type.kind is Kind.BIGINT else MICROS_OF_MS


@dataclass(frozen=True, slots=True)
class WindowBound:
    """The start or end of a row's window. With HOP a row becomes one row for each window."""

    window: Window
    end: bool
    type: SqlType

    @property
    def name(self) -> str:
        return "window_end" if self.end else "window_start"


@dataclass(frozen=True, slots=True)
class Composite:
    """Several expressions as one ROW value, an argument of aggregates: sort keys, then a value.

    It is NULL if the last part is, if any part is, or never."""

    parts: tuple[Expression, ...]
    type: SqlType
    null_where: OneOf["last", "any", "never"] = "last"


@dataclass(frozen=True, slots=True)
class SetNumber:
    """The number of the grouping set of a row. A row becomes one row for each grouping set."""

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
    """An expression and the name of its column: a group column or an aggregate's argument."""

    name: str
    expression: Expression

    @property
    def type(self) -> SqlType:
        return self.expression.type


@dataclass(frozen=True, slots=True)
class Ordering:
    """A direction of an aggregate's ORDER BY; by default NULL is the smallest value."""

    descending: bool = False
    nulls_first: bool = True


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One aggregate of the query. `argument` indexes Plan.arguments; None for COUNT(*).

    A FILTER (WHERE c) is already part of the argument: CASE WHEN c THEN x END. With an ORDER BY,
    `order` has a direction for each part of the argument.
    """

    function: str  # a name of jobs.core.aggregates.FUNCTIONS
    argument: int | None
    name: str
    type: SqlType
    distinct: bool = field(default=False, metadata=LATER)
    parameters: tuple[str | int, ...] = field(default=(), metadata=LATER)  # constants of the call
    order: tuple[Ordering, ...] = field(default=(), metadata=LATER)


@dataclass(frozen=True, slots=True)
class Scan:
    """The rows of a source that a join reads: filtered and projected where they are decoded."""

    source: str  # its name in the spec, "" for an only source
    alias: str  # its name in the query, unique among the scans
    outputs: tuple[Named, ...]  # named ALIAS.NAME, over columns of the source
    where: Expression | None = None  # over columns of the source

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of its rows."""
        return tuple(Column(each.name, each.type) for each in self.outputs)


JoinKind = OneOf["INNER", "LEFT", "RIGHT", "FULL", "SEMI", "ANTI"]


@dataclass(frozen=True, slots=True)
class Join:
    """A join of equal keys. SEMI has the left rows with a match, ANTI those without one."""

    kind: JoinKind
    left: Relation
    right: Scan
    left_keys: tuple[Expression, ...]  # over the columns of the left rows
    right_keys: tuple[Expression, ...]
    columns: tuple[Column, ...]  # of its rows: those that something above reads
    residual: Expression | None = None  # of INNER: which pairs with equal keys match

    @property
    def keeps_left(self) -> bool:
        """Whether a left row without a match is a row of the join."""
        return self.kind in ("LEFT", "FULL", "ANTI")

    @property
    def keeps_right(self) -> bool:
        """Whether a right row without a match is a row of the join."""
        return self.kind in ("RIGHT", "FULL")

    @property
    def inputs(self) -> tuple[Column, ...]:
        """The columns of a pair of matching rows; SEMI and ANTI have no right columns."""
        right = () if self.kind in ("SEMI", "ANTI") else self.right.columns
        return (*self.left.columns, *right)


Relation = Scan | Join


@dataclass(frozen=True, slots=True)
class Plan:
    """What a job computes, independent of its source and its sink."""

    columns: tuple[Column, ...]  # declared by the source, in order, or those of `relation`
    used: tuple[Column, ...]  # columns that the query reads; others are only checked
    where: Expression | None
    group: tuple[Named, ...]  # a selected group column has the name of its result column
    arguments: tuple[Named, ...]  # distinct arguments of aggregates; names unique
    aggregates: tuple[Aggregate, ...]
    output: tuple[str, ...]  # result columns in SELECT order: names from group and results
    # Expressions over a group's key and aggregates: result columns, and HAVING, which decides
    # whether the group has a row. Aggregates that only these need are not in the output.
    computed: tuple[Named, ...] = field(default=(), metadata=LATER)
    having: Expression | None = field(default=None, metadata=LATER)
    grouping_sets: int = field(default=1, metadata=LATER)  # how many
    # For a job that keeps the last image of each row: the columns that identify a row.
    primary_key: tuple[Column, ...] = field(default=(), metadata=LATER)
    # What FROM joins; None: the rows of the job's only source.
    relation: Relation | None = field(default=None, metadata=LATER)
    # The source whose rows it reads, if the job has several and FROM names one.
    source: str = field(default="", metadata=LATER)
    # With `empty: row`: the groups that have a row without input, those of no columns.
    empty_keys: tuple[Row, ...] = field(default=(), metadata=LATER)

    @property
    def image(self) -> tuple[Column, ...]:
        """The columns read from a row: the columns of the query, then the rest of its key."""
        return (*self.used, *(column for column in self.primary_key if column not in self.used))

    @property
    def window(self) -> Window | None:
        """The windows of the query, or None; the group columns contain both of their bounds."""
        bounds = (
            each.expression for each in self.group if isinstance(each.expression, WindowBound)
        )
        return next((bound.window for bound in bounds), None)

    @property
    def instants_argument(self) -> int | None:
        """The index of the argument that keeps the instants of a key in the state of sessions."""
        window = self.window
        if window is None or window.function != "SESSION":
            return None
        bound = WindowBound(window, False, window.bound_type)
        return next(i for i, each in enumerate(self.arguments) if each.expression == bound)

    @property
    def copies_per_row(self) -> int:
        """The number of projected rows for one source row, at most: windows times grouping sets."""
        return self.grouping_sets * (1 if self.window is None else self.window.windows_per_row)

    @property
    def counted_copies(self) -> int:
        """The number of them that are counted; for CUMULATE only those in its last window."""
        return self.grouping_sets if self.cumulates else self.copies_per_row

    @property
    def cumulates(self) -> bool:
        return self.window is not None and self.window.function == "CUMULATE"

    @property
    def key(self) -> list[tuple[str, SqlType]]:
        """Name and type of the group columns."""
        return [(named.name, named.type) for named in self.group]

    @property
    def results(self) -> tuple[tuple[str, SqlType], ...]:
        """Name and type of the published columns of a group, after its key."""
        kept = self.kept_results
        if not self.has_computed:
            return kept
        return tuple(each for each in kept if each[0] in self.output)

    @property
    def types(self) -> dict[str, SqlType]:
        """The type of each published column, hidden group columns too."""
        return dict([*self.key, *self.results])

    @property
    def kept_results(self) -> tuple[tuple[str, SqlType], ...]:
        """Name and type of the results in the state: all aggregates, then computed columns."""
        aggregates = [(each.name, each.type) for each in self.aggregates]
        return (*aggregates, *((each.name, each.type) for each in self.computed))

    @property
    def has_computed(self) -> bool:
        """Whether the plan has computed columns or HAVING."""
        return bool(self.computed) or self.having is not None

    @property
    def unselected(self) -> tuple[str, ...]:
        """Group columns that the query does not select; they still belong to the key."""
        return tuple(column.name for column in self.group if column.name not in self.output)

    @property
    def fingerprint(self) -> str:
        """A hash that is equal for equal plans, on every machine and in every process."""
        text = json.dumps(_canonical(self), ensure_ascii=True, separators=(",", ":"))
        return hashlib.sha256(text.encode("ascii")).hexdigest()


def _canonical(value: Any) -> Any:
    """Return a plan or a part of it as JSON: class names, fields in order, types as SQL text."""
    if isinstance(value, SqlType):
        return str(value)
    if is_dataclass(value):
        parts = [part for part in fields(value) if not _is_omitted(part, getattr(value, part.name))]
        return [type(value).__name__, *(_canonical(getattr(value, part.name)) for part in parts)]
    if isinstance(value, tuple):
        return [_canonical(part) for part in value]
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    return value


def _is_omitted(part: Field[Any], value: Any) -> bool:
    return "later" in part.metadata and value == part.default
