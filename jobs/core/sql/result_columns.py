"""The result of a query: what SELECT lists, the aggregates in it, and what everything is called.

SELECT k, SUM(v), SUM(v) / COUNT(*)
       │    │        └► computed: an expression over two calls, one of them SUM(v) itself
       │    └► a call
       └► a column of the key
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from jobs.core.evaluate.expressions import not_here
from jobs.core.plan import typing_rules
from jobs.core.plan.tree import (
    Aggregate,
    AggregateValue,
    Column,
    Constant,
    Expression,
    KeyValue,
    Named,
    WindowBound,
)
from jobs.core.plan.walk import replaced, walk
from jobs.core.sql import window_calls
from jobs.core.sql.aggregate_calls import argument_name, is_call, named_in, read_call, written_name
from jobs.core.sql.dialect import Refusal
from jobs.core.sql.problems import function_name, same_name, sql_name
from jobs.core.sql.row_expressions import RowReader
from jobs.core.sql.scope import (
    NAME,
    RESERVED,
    Item,
    Scope,
    column_name,
    follows,
    readable_name,
    unused,
)
from schemas.limits import IDENTIFIER_CHARACTERS_MAX
from schemas.types.sql_types import INT, SqlType


@dataclass
class ResultReader(RowReader):
    """Reads the SELECT list, and names what is in it."""

    columns: Mapping[str, SqlType] = field(default_factory=dict)
    calls: list[Item] = field(default_factory=list)  # those inside expressions, equal ones once
    uses: list[int] = field(default_factory=list)  # which of them, whenever one is read

    # -- what is selected --

    def items(self, node: exp.Expr, scope: Scope) -> Iterator[Item]:
        with self.problems_kept():
            alias = node.alias if isinstance(node, exp.Alias) else None
            value = node.this if isinstance(node, exp.Alias) else node
            while isinstance(value, exp.Paren):
                value = value.this
            if isinstance(value, exp.Star):
                raise self.refused("SELECT * says nothing of groups: name the columns", value)
            if is_call(value):
                yield self._aggregate(value, alias, scope)
            else:
                before = len(self.uses)
                expression = self.row(value, scope, "SELECT")
                with self.at(value):
                    typing_rules.typed(expression)
                if used := self.uses[before:]:
                    readable = "_".join(dict.fromkeys(self.calls[each].readable for each in used))
                    yield Item(value, alias, expression, readable=readable, computed=True)
                    return
                column = scope.spelling(value.name) if isinstance(value, exp.Column) else None
                readable = scope.readable(value) or "constant"
                if isinstance(expression, WindowBound):
                    readable = expression.name
                yield Item(value, alias, expression, column=column, readable=readable)

    def _aggregate(self, node: exp.Expr, alias: str | None, scope: Scope) -> Item:
        call = read_call(self, node, lambda inner, where: self.row(inner, scope, where))
        argument = Constant(1, INT) if call.argument is None else call.argument
        names = (written_name(node).lower(), scope.readable(named_in(node)))
        return Item(node, alias, argument, call, readable="_".join(filter(None, names)))

    def aggregate_value(self, node: exp.Expr, scope: Scope) -> Expression:
        """An aggregate inside an expression; equal ones are one."""
        item = self._aggregate(node, None, scope)
        assert item.call is not None
        columns = [each.name for each in walk(item.expression) if isinstance(each, Column)]
        item.readable = "_".join(dict.fromkeys([item.call.function.lower(), *columns]))
        known = [each.call for each in self.calls]
        if item.call not in known:
            self.calls.append(item)
            known.append(item.call)
        self.uses.append(known.index(item.call))
        return AggregateValue(self.uses[-1], item.call.type)

    def aliases(self, items: list[Item], scope: Scope) -> dict[str, Expression]:
        """What the names of the result stand for in HAVING."""
        known: dict[str, Expression] = {}
        for item in items:
            if item.alias is None:
                continue
            known[item.alias] = item.expression
            if item.call is not None:
                known[item.alias] = self.aggregate_value(item.node, scope)
        return known

    def called(self, items: list[Item]) -> list[Item]:
        """The aggregates of the query: those that are selected, then those inside expressions."""
        selected = [item for item in items if item.call]
        known = [item.call for item in selected]
        return [*selected, *(item for item in self.calls if item.call not in known)]

    def group(self, keys: list[Expression], items: list[Item]) -> list[Expression]:
        """The group expressions, and behind them what else is selected of them.

        UPPER(k) with GROUP BY k is a function of the key: it joins the key and changes no group.
        What is selected again comes last, as it would if GROUP BY named all of the rest.
        """
        group, free = list(keys), list(keys)
        again: list[Expression] = []
        for item in items:
            if item.call or item.computed:
                continue
            if item.expression in free:
                free.remove(item.expression)
            elif follows(item.expression, keys):
                (again if item.expression in group else group).append(item.expression)
            else:
                with self.problems_kept():
                    raise self.ungrouped(item.expression, item.node, keys)
        return group + again

    def ungrouped(self, expression: Expression, node: exp.Expr, keys: list[Expression]) -> Refusal:
        names = [each.name for each in walk(expression) if isinstance(each, Column)]
        loose = next((name for name in names if Column(name, self.columns[name]) not in keys), "")
        message = f"`{loose}` is neither in GROUP BY nor inside an aggregate"
        outside = (each for each in node.walk(prune=is_call) if isinstance(each, exp.Column))
        place = next((each for each in outside if same_name(each.name, loose)), node)
        return self.refused(message, place, f"GROUP BY {loose}, or MAX({loose})")

    # -- names --

    def name_results(self, items: list[Item]) -> None:
        """Names of the result: AS first, then plain columns, then ones made from what is there."""
        taken: dict[str, str] = {}
        for item in items:
            name = item.column if item.alias is None else item.alias
            if name is None:
                continue
            with self.problems_kept():
                self._check_name(name, item, taken)
            item.name = name
            taken[name.lower()] = name
        for item in items:
            if not item.name:
                item.name = unused(item.readable, taken)
                taken[item.name.lower()] = item.name

    def _check_name(self, name: str, item: Item, taken: Mapping[str, str]) -> None:
        if not NAME.fullmatch(name):
            raise self.refused(
                f"{name!r} cannot be the name of a column: letters, digits and _, at most "
                f"{IDENTIFIER_CHARACTERS_MAX}, not a digit first",
                item.node,
                "AS and another name",
            )
        if name.lower() in RESERVED:
            message = f"`{name}` is a column of the job's own table"
            raise self.refused(message, item.node, f"AS {name}_, or another name")
        if name.lower() in taken:
            same = "" if taken[name.lower()] == name else f", which differs from `{name}` in case"
            message = f"two columns of the result are called `{taken[name.lower()]}`{same}"
            raise self.refused(message, item.node, "AS and another name")

    def name_keys(self, group: list[Expression], items: list[Item]) -> tuple[Named, ...]:
        """Group columns are called as in the result; hidden ones get a name of ours."""
        taken = {item.name.lower(): item.name for item in items}
        shown = [item for item in items if not (item.call or item.computed)]
        named = []
        for expression in group:
            item = next((each for each in shown if each.expression == expression), None)
            if item is not None:
                shown.remove(item)
                named.append(Named(item.name, expression))
                continue
            name = unused(readable_name(expression), taken)
            taken[name.lower()] = name
            named.append(Named(name, expression))
        return tuple(named)

    def aggregates(
        self, called: list[Item], known_as: Sequence[Item | Named]
    ) -> tuple[tuple[Named, ...], tuple[Aggregate, ...]]:
        """The distinct arguments, and the aggregates over them. Those that are not selected get
        names that are free."""
        arguments: list[Named] = []
        aggregates = []
        taken: dict[str, str] = {}
        names = {each.name.lower(): each.name for each in known_as}
        for item in called:
            if not item.name:
                item.name = unused(item.readable, names)
                names[item.name.lower()] = item.name
            assert item.call is not None
            index = None
            if item.call.argument is not None:
                known = [each.expression for each in arguments]
                if item.expression not in known:
                    name = argument_name(item.expression) or column_name(item.expression)
                    name = unused(name or item.name, taken)
                    taken[name.lower()] = name
                    arguments.append(Named(name, item.expression))
                    known.append(item.expression)
                index = known.index(item.expression)
            call = item.call
            aggregates.append(
                Aggregate(
                    call.function, index, item.name, call.type,
                    call.distinct, call.parameters, call.order,
                )
            )  # fmt: skip
        if self.window is not None and self.window.function == "SESSION":
            start = window_calls.bounds(self.window)[0]
            if start not in [each.expression for each in arguments]:
                arguments.append(Named(unused("instant", taken), start))
        return tuple(arguments), tuple(aggregates)


class OverResults:
    """Expressions over a group's results: what in them is the key's, what an aggregate's."""

    def __init__(
        self,
        reader: ResultReader,
        keys: list[Expression],
        group: list[Expression],
        called: list[Item],
    ) -> None:
        self.reader = reader
        self.keys = keys
        self.group = group  # grows: a function of the key that only Spark has joins the key
        self.places = [[item.call for item in called].index(each.call) for each in reader.calls]

    def resolved(self, expression: Expression, node: exp.Expr) -> Expression:
        made = replaced(expression, self._result)
        if any(isinstance(each, Column) for each in walk(made)):
            raise self.reader.ungrouped(made, node, self.keys)
        if why := not_here(made):
            outside = node.walk(prune=is_call)
            names = ((function_name(each) or sql_name(type(each)), each) for each in outside)
            place = next((each for name, each in names if name == why.name), node)
            raise self.reader.refused(why.message, place, why.hint)
        return made

    def _result(self, part: Expression) -> Expression | None:
        """The value of the group that a part is; None where its own parts are to be looked at."""
        if isinstance(part, AggregateValue):
            return AggregateValue(self.places[part.index], part.type)
        if isinstance(part, Constant):
            return part
        if (value := self._of_key(part)) is not None:
            return value
        over_key = not any(isinstance(each, AggregateValue) for each in walk(part))
        if over_key and follows(part, self.keys) and not_here(replaced(part, self._of_key)):
            self.group.append(part)
            return KeyValue(len(self.group) - 1, part.type)
        return None

    def _of_key(self, part: Expression) -> Expression | None:
        return KeyValue(self.group.index(part), part.type) if part in self.group else None
