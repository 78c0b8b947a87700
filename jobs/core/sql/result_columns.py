"""Read the SELECT list: its keys, its aggregates, its computed columns, and their names.

SELECT k, SUM(v), SUM(v) / COUNT(*)
       │    │        └► computed: an expression over two calls, one of them SUM(v) itself
       │    └► a call
       └► a column of the key
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from jobs.core.evaluate.expressions import why_not_evaluable
from jobs.core.plan import typing_rules
from jobs.core.plan.relations import bare_name
from jobs.core.plan.tree import (
    Aggregate,
    AggregateValue,
    Call,
    Cast,
    Column,
    Constant,
    Expression,
    KeyValue,
    Named,
    WindowBound,
)
from jobs.core.plan.walk import replace_parts, walk
from jobs.core.sql import window_calls
from jobs.core.sql.aggregate_calls import (
    argument_name,
    called_function,
    is_call,
    naming_part,
    read_call,
)
from jobs.core.sql.dialect import Refusal
from jobs.core.sql.problems import function_name, same_name, split_words
from jobs.core.sql.row_expressions import RowReader
from jobs.core.sql.scope import (
    NAME,
    RESERVED,
    Scope,
    SelectItem,
    column_name,
    free_name,
    is_over_keys,
    readable_name,
)
from schemas.limits import IDENTIFIER_CHARACTERS_MAX
from schemas.types.sql_types import INT, STRING, Kind

_KEY_FUNCTIONS = split_words("""
    UPPER LOWER EXP LN LOG10 LOG2 LOG POWER DATE_FORMAT TO_DATE TO_TIMESTAMP TO_TIMESTAMP_LTZ
    JSON_VALUE JSON_QUERY JSON_EXISTS
""")


@dataclass
class ResultReader(RowReader):
    """Reads the SELECT list, and names its columns."""

    calls: list[SelectItem] = field(
        default_factory=list
    )  # those inside expressions, equal ones once
    uses: list[int] = field(default_factory=list)  # which of them, whenever one is read

    # -- the SELECT list --

    def read_items(self, node: exp.Expr, scope: Scope) -> Iterator[SelectItem]:
        with self.collect_problems():
            alias = node.alias if isinstance(node, exp.Alias) else None
            value = node.this if isinstance(node, exp.Alias) else node
            while isinstance(value, exp.Paren):
                value = value.this
            if isinstance(value, exp.Star):
                raise self.refusal("SELECT * is not possible with groups: name the columns", value)
            if is_call(value):
                yield self._read_aggregate(value, alias, scope)
            else:
                before = len(self.uses)
                expression = self.read_row(value, scope, "SELECT")
                with self.blame(value):
                    typing_rules.require_type(expression)
                if used := self.uses[before:]:
                    readable = "_".join(dict.fromkeys(self.calls[each].readable for each in used))
                    yield SelectItem(value, alias, expression, readable=readable, computed=True)
                    return
                column = None
                if isinstance(value, exp.Column):
                    column = scope.spelling(value.name, value.table)
                readable = scope.readable_name(value) or "constant"
                if isinstance(expression, WindowBound):
                    readable = expression.name
                yield SelectItem(value, alias, expression, column=column, readable=readable)

    def _read_aggregate(self, node: exp.Expr, alias: str | None, scope: Scope) -> SelectItem:
        self.require_known(node)
        call = read_call(self, node, lambda inner, where: self.read_row(inner, scope, where))
        argument = Constant(1, INT) if call.argument is None else call.argument
        names = (
            function_name(called_function(node)).lower(),
            scope.readable_name(naming_part(node)),
        )
        return SelectItem(node, alias, argument, call, readable="_".join(filter(None, names)))

    def read_aggregate_value(self, node: exp.Expr, scope: Scope) -> Expression:
        """Return the value of an aggregate inside an expression; equal calls are one."""
        item = self._read_aggregate(node, None, scope)
        assert item.call is not None
        read = walk(item.expression)
        columns = [bare_name(each.name) for each in read if isinstance(each, Column)]
        item.readable = "_".join(dict.fromkeys([item.call.function.lower(), *columns]))
        known = [each.call for each in self.calls]
        if item.call not in known:
            self.calls.append(item)
            known.append(item.call)
        self.uses.append(known.index(item.call))
        return AggregateValue(self.uses[-1], item.call.type)

    def alias_expressions(self, items: list[SelectItem], scope: Scope) -> dict[str, Expression]:
        """Return the expressions that aliases of the SELECT list have in HAVING."""
        known: dict[str, Expression] = {}
        for item in items:
            if item.alias is None:
                continue
            known[item.alias] = item.expression
            if item.call is not None:
                known[item.alias] = self.read_aggregate_value(item.node, scope)
        return known

    def all_calls(self, items: list[SelectItem]) -> list[SelectItem]:
        """Return the aggregates of the query: selected ones, then those inside expressions."""
        selected = [item for item in items if item.call]
        known = [item.call for item in selected]
        return [*selected, *(item for item in self.calls if item.call not in known)]

    def group_columns(self, keys: list[Expression], items: list[SelectItem]) -> list[Expression]:
        """Return the group expressions, and then selected expressions over them.

        UPPER(k) with GROUP BY k is a function of the key: as part of the key it changes no group.
        Expressions that are selected twice come last, as if GROUP BY named all the others.
        """
        group, free = list(keys), list(keys)
        again: list[Expression] = []
        for item in items:
            if item.call or item.computed:
                continue
            if item.expression in free:
                free.remove(item.expression)
            elif is_over_keys(item.expression, keys):
                (again if item.expression in group else group).append(item.expression)
            else:
                with self.collect_problems():
                    raise self.ungrouped_refusal(item.expression, item.node, keys)
        return group + again

    def ungrouped_refusal(
        self, expression: Expression, node: exp.Expr, keys: list[Expression]
    ) -> Refusal:
        read = [each for each in walk(expression) if isinstance(each, Column)]
        loose = next((each.name for each in read if each not in keys), "")
        message = f"`{loose}` is neither in GROUP BY nor inside an aggregate"
        outside = (each for each in node.walk(prune=is_call) if isinstance(each, exp.Column))
        name = bare_name(loose)
        blamed = next((each for each in outside if same_name(each.name, name)), node)
        return self.refusal(message, blamed, f"GROUP BY {loose}, or MAX({loose})")

    # -- names --

    def name_results(self, items: list[SelectItem]) -> None:
        """Name the result columns: by AS, by their plain column, or by their expression."""
        taken: dict[str, str] = {}
        for item in items:
            name = item.column if item.alias is None else item.alias
            if name is None:
                continue
            with self.collect_problems():
                self._check_name(name, item, taken)
            item.name = name
            taken[name.lower()] = name
        for item in items:
            if not item.name:
                item.name = free_name(item.readable, taken)
                taken[item.name.lower()] = item.name

    def _check_name(self, name: str, item: SelectItem, taken: Mapping[str, str]) -> None:
        if not NAME.fullmatch(name):
            raise self.refusal(
                f"{name!r} cannot be the name of a column: use at most "
                f"{IDENTIFIER_CHARACTERS_MAX} letters, digits and _, and no digit first",
                item.node,
                "AS and another name",
            )
        if name.lower() in RESERVED:
            message = f"`{name}` is a column of the job's own table"
            raise self.refusal(message, item.node, f"AS {name}_, or another name")
        if name.lower() in taken:
            same = "" if taken[name.lower()] == name else f", which differs from `{name}` in case"
            message = f"two columns of the result have the name `{taken[name.lower()]}`{same}"
            raise self.refusal(message, item.node, "AS and another name")

    def name_keys(self, group: list[Expression], items: list[SelectItem]) -> tuple[Named, ...]:
        """Name the group columns as in the result; generate names for unselected ones."""
        taken = {item.name.lower(): item.name for item in items}
        shown = [item for item in items if not (item.call or item.computed)]
        named = []
        for expression in group:
            item = next((each for each in shown if each.expression == expression), None)
            if item is not None:
                shown.remove(item)
                named.append(Named(item.name, expression))
                continue
            name = free_name(readable_name(expression), taken)
            taken[name.lower()] = name
            named.append(Named(name, expression))
        return tuple(named)

    def make_aggregates(
        self, called: list[SelectItem], known_as: Sequence[SelectItem | Named]
    ) -> tuple[tuple[Named, ...], tuple[Aggregate, ...]]:
        """Return the distinct arguments, and the aggregates over them.

        Aggregates that are not selected get a generated name."""
        arguments: list[Named] = []
        aggregates = []
        taken: dict[str, str] = {}
        names = {each.name.lower(): each.name for each in known_as}
        for item in called:
            if not item.name:
                item.name = free_name(item.readable, names)
                names[item.name.lower()] = item.name
            assert item.call is not None
            index = None
            if item.call.argument is not None:
                known = [each.expression for each in arguments]
                if item.expression not in known:
                    name = argument_name(item.expression) or column_name(item.expression)
                    name = free_name(name or item.name, taken)
                    taken[name.lower()] = name
                    arguments.append(Named(name, item.expression))
                    known.append(item.expression)
                index = known.index(item.expression)
            call = item.call
            options = (call.distinct, call.parameters, call.order)
            aggregates.append(Aggregate(call.function, index, item.name, call.type, *options))
        if self.window is not None and self.window.function == "SESSION":
            start = window_calls.window_bounds(self.window)[0]
            if start not in [each.expression for each in arguments]:
                arguments.append(Named(free_name("instant", taken), start))
        return tuple(arguments), tuple(aggregates)


class ResultExpressions:
    """Rewrites expressions over a group's results in terms of its key and aggregates."""

    def __init__(
        self,
        reader: ResultReader,
        keys: list[Expression],
        group: list[Expression],
        called: list[SelectItem],
    ) -> None:
        self.reader = reader
        self.keys = keys
        self.group = group  # grows, see _joins_key
        self.indexes = [[item.call for item in called].index(each.call) for each in reader.calls]

    def resolve(self, expression: Expression, node: exp.Expr) -> Expression:
        made = replace_parts(expression, self._group_value)
        if any(isinstance(each, Column) for each in walk(made)):
            raise self.reader.ungrouped_refusal(made, node, self.keys)
        if why := why_not_evaluable(made):
            raise self.reader.refusal(why, node)
        return made

    def _group_value(self, part: Expression) -> Expression | None:
        """Return the part as a value of the group, or None to visit its own parts."""
        if isinstance(part, AggregateValue):
            return AggregateValue(self.indexes[part.index], part.type)
        if isinstance(part, Constant):
            return part
        if (value := self._key_value(part)) is not None:
            return value
        over_key = not any(isinstance(each, AggregateValue) for each in walk(part))
        if (
            over_key
            and is_over_keys(part, self.keys)
            and _joins_key(replace_parts(part, self._key_value))
        ):
            self.group.append(part)
            return KeyValue(len(self.group) - 1, part.type)
        return None

    def _key_value(self, part: Expression) -> Expression | None:
        return KeyValue(self.group.index(part), part.type) if part in self.group else None


def _joins_key(part: Expression) -> bool:
    """Return whether a function of the key becomes a column of the key, and not a computed one.

    Some do since version 0.1, and another plan would not fit the tables of their jobs."""
    if why_not_evaluable(part):
        return True
    for each in walk(part):
        if isinstance(each, Call) and each.function in _KEY_FUNCTIONS:
            return True
        if isinstance(each, Cast):
            source, target = each.operand.type, each.type
            if source == STRING and target.kind is not Kind.BINARY:
                return True
            if source.floating and target == STRING:
                return True
    return False
