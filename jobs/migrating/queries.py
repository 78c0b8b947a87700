"""The query of an INSERT as the query of a job: one SELECT over one source, or over a join.

    FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(at), INTERVAL '1' MINUTES))   ──►  FROM orders
    GROUP BY shop, window_start, window_end   ──►  GROUP BY shop, TUMBLE(at, INTERVAL '1' MINUTES)
    FROM a_view                               ──►  FROM (its SELECT) AS a_view
    a view or derived table with GROUP BY     ──►  a job of its own, whose changelog is read

Results get the names of the sink's columns, because INSERT goes by position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from sqlglot import exp

from jobs.core.sql.dialect import Refusal
from jobs.core.sql.problems import function_name
from jobs.core.sql.window_calls import NAMES as BOUNDS
from jobs.core.sql.window_calls import is_window
from jobs.migrating import joins, selects
from jobs.migrating.dialect import WindowTable, call, column, identifier, place, write
from jobs.migrating.joined_views import merge_views
from jobs.migrating.problems import Note
from jobs.migrating.relations import Query, Relation
from jobs.migrating.sources import SourceTable, source_table
from jobs.migrating.statements import SqlFile
from jobs.migrating.window_bounds import bound_kind, is_of_session, write_bounds
from schemas.limits import QUERY_NESTING_MAX

_ANSWERS = dict.fromkeys(
    ("LISTAGG", "ARRAY_AGG"),
    "without ORDER BY the values are sorted; Flink has them in the order of arrival",
) | dict.fromkeys(
    ("VAR_POP", "VAR_SAMP", "VARIANCE", "STDDEV_POP", "STDDEV_SAMP", "STDDEV"),
    "a DOUBLE from exact sums; in Flink the type of its argument",
)
Result = tuple[exp.Expr, str | None]  # an item, and its name if it has one
_TIES = "rows with equal sort keys are ordered by the selected columns; in Flink by arrival"


class QueryConverter:
    """Converts the queries of one INSERT."""

    def __init__(self, file: SqlFile, query: exp.Select, target: str) -> None:
        self._file = file
        self._query = query
        self._target = target
        self._used, self._values = selects.names_of(query, file)
        self._open: list[str] = []  # views that are being read
        self._depth = 0  # of views and subqueries

    def convert(self, names: Sequence[str]) -> Query:
        """Return the query of a job; `names` are those of its results, if they are known."""
        select = merge_views(selects.check_clauses(self._query.copy()), self._file)
        query = self._read(select, names)
        if query.numbered is not None:
            raise query.numbered.refusal
        if not query.aggregated:
            reason = "a job is a GROUP BY; this query has no GROUP BY and no aggregate"
            if query.relation.inner is not None:
                name = query.relation.inner.name
                reason += f", and changes the results of {name}; change them there"
            raise Refusal(reason, query.offset)
        return query

    def _read(self, select: exp.Select, names: Sequence[str]) -> Query:
        relation = self._relation(select)
        self._rename(select, relation)
        return self._select(select, relation, names)

    # --- FROM -------------------------------------------------------------------------------

    def _relation(self, select: exp.Select) -> Relation:
        first, others = select.args["from_"], select.args.get("joins") or []
        if not others:
            return self._read_item(first.this)
        sides: list[Relation] = []
        for each in (first, *others):
            joins.refuse_versions(each.this, self._file)
            sides.append(self._read_item(each.this))
            joins.refuse_side(sides[-1], place(each.this))
            if (condition := each.args.get("on")) is not None:
                joins.refuse_intervals(condition, sides)
            item = sides[-1].item
            item.meta["start"] = place(each.this)
            each.set("this", item)
        join = Relation(joined=sides)
        for source in join.sources:
            if identifier(source.table.name).quoted:
                reason = "the name of a joined table has letters, digits and _ only; rename it"
                raise Refusal(reason, source.table.offset)
        return join

    def _read_item(self, item: exp.Expr) -> Relation:
        if item.args.get("joins") or (
            isinstance(item, exp.Subquery) and isinstance(item.this, exp.Table)
        ):
            raise Refusal(joins.NESTED_JOIN, place(item))
        if not selects.is_plain_item(item):
            raise Refusal("this part of FROM is not known", place(item))
        if isinstance(item, exp.Subquery):
            inner = selects.check_clauses(item.this)
            relation = self._read_subquery(inner, item.alias or f"{self._target}_inner", ())
        elif isinstance(item.this, exp.Identifier):
            relation = self._find_relation(item)
            if (window := item.meta.get("window")) is not None:
                relation = self._with_window(relation, window)
        else:
            raise Refusal("this part of FROM is not known", place(item))
        relation.alias = item.alias or relation.alias
        return relation

    def _find_relation(self, item: exp.Expr) -> Relation:
        name, offset = item.name, place(item.this)
        view = self._file.views.get(name)
        if view is not None:
            if name in self._open:
                raise Refusal(f"the view {name} reads itself", offset)
            self._open.append(name)
            relation = self._read_subquery(selects.check_clauses(view.select()), name, view.columns)
            self._open.pop()
            return relation
        table = self._file.tables.get(name)
        if table is None:
            raise Refusal(f"there is no CREATE TABLE or VIEW of {name}", offset)
        source = source_table(table, self._used)
        body = self._with_computed(source)
        return Relation(body, name, source, visible=source.visible, times=source.window_times)

    def _with_computed(self, source: SourceTable) -> exp.Expr:
        """Return the table, with its computed columns if the query uses them."""
        added: list[exp.Expr] = []
        for each in source.computed.values():
            used = self._values if each.name in source.window_times else self._used
            if each.name not in used or each.expression is None:
                continue
            if any(function_name(part) == "PROCTIME" for part in each.expression.walk()):
                reason = "PROCTIME() is no part of a row: a retraction would have another value"
                raise Refusal(reason, each.offset)
            rename = selects.renaming(source.nested, source.replaced)
            expression = each.expression.transform(rename)
            added.append(exp.Alias(this=expression, alias=identifier(each.name)))
        for each in source.metadata.values():
            if each.name in self._used:
                reason = (
                    f"{each.name} is metadata of the message, and a retraction comes in another "
                    "message than its row; use a column of the row"
                )
                raise Refusal(reason, each.offset)
        table = exp.Table(this=identifier(source.table.name))
        if not added:
            return table
        select = exp.Select(expressions=[exp.Star(), *added], from_=exp.From(this=table))
        return exp.Subquery(this=select)

    def _read_subquery(self, select: exp.Select, alias: str, names: Sequence[str]) -> Relation:
        """Return a view or derived table: in place, or as a job of its own."""
        self._depth += 1
        if self._depth > QUERY_NESTING_MAX:
            reason = f"views and subqueries are nested more than {QUERY_NESTING_MAX} levels deep"
            raise Refusal(reason, place(select))
        query = self._read(select, names)
        self._depth -= 1
        inner = query.relation
        if query.aggregated:
            query.name = alias
            body: exp.Expr = exp.Table(this=identifier(alias))
            return Relation(body, alias, inner=query, visible=query.outputs)
        plain = select.expressions == [exp.Star()] and not select.args.get("where")
        kept = plain and not inner.joined
        return replace(
            inner,
            body=inner.body if kept else exp.Subquery(this=select),
            alias=alias,
            visible=query.outputs,
            numbered=query.numbered,
        )

    def _with_window(self, relation: Relation, window: WindowTable) -> Relation:
        if relation.inner is not None:
            reason = "windows over the results of a GROUP BY have no counterpart"
            raise Refusal(reason, window.offset)
        times = relation.source.times if relation.source else None
        if times is None:
            raise Refusal("the table has no WATERMARK FOR its time", place(window.time))
        if window.time.name not in (times.name, times.column):
            reason = f"the watermark is over {times.name}, not over this"
            raise Refusal(reason, place(window.time))
        return replace(relation, window=window, visible=[*relation.visible, *BOUNDS])

    # --- SELECT -----------------------------------------------------------------------------

    def _rename(self, select: exp.Select, relation: Relation) -> None:
        """Write nested fields and the time column as the spec names them."""
        if relation.joined:
            where = select.args.get("where")
            # Only such a WHERE may bound the times of a join.
            if where is not None and where.find(exp.Interval, exp.Between) is not None:
                joins.refuse_intervals(where.this, relation.joined)
            joins.rename_joined(select, relation.joined)
        if relation.source is not None:
            names = relation.source.replaced | relation.bounds
            selects.rewrite(select, selects.renaming(relation.source.nested, names, relation.times))

    def _select(self, select: exp.Select, relation: Relation, names: Sequence[str]) -> Query:
        items = list(self._expand(select, relation))
        starred = not names and any(each.is_star for each in select.expressions)
        numbered = relation.numbered
        if numbered and (relation.window or not numbered.takes_first(select.args.get("where"))):
            raise numbered.refusal
        aggregated = selects.is_aggregated(select) or numbered is not None
        legacy = next(filter(is_window, selects.group_keys(select)), None)
        if legacy is not None and relation.joined:
            reason = "windows over a join have no counterpart: they do not close"
            raise Refusal(reason, place(legacy))
        if aggregated and relation.window is not None:
            _group_by_window(select, relation)
        if names and len(names) != len(items):
            reason = f"the SELECT has {len(items)} columns, and the target {len(names)}"
            raise Refusal(reason, place(select))
        results: list[Result] = list(zip(items, names or map(selects.label_of, items), strict=True))
        passed = set[str]()
        if not aggregated and not starred:
            results, passed = _pass_time(results, relation)
        query = Query(select, relation, place(select), aggregated=aggregated)
        query.windowed = aggregated and (relation.window is not None or legacy is not None)
        query.outputs = [name or write(item) for item, name in results]
        query.numbered = _find_numbering(results)
        if query.numbered and aggregated:
            raise query.numbered.refusal
        query.notes = [note for item, _ in results for note in _notes_of(item, relation)]
        if (having := select.args.get("having")) is not None:
            text = "a group enters with +I and leaves with -D; Flink filters the changelog's rows"
            query.notes.append(Note(text, offset=place(having)))
        if numbered:
            query.notes.append(Note(_TIES, True, numbered.offset))
        change = write_bounds(relation)
        written = {id(item): _name(item, name, change) for item, name in results}
        select.set(
            "expressions",
            # A star stays one, so that the time is in it.
            [exp.Star() if each.is_star else written[id(each)] for each in select.expressions]
            if starred and not aggregated
            else [*written.values(), *map(column, sorted(passed))],
        )
        for name in ("group", "having"):
            if (part := select.args.get(name)) is not None:
                part = part.transform(change, copy=False)
                select.set(name, part.transform(_approximate, copy=False))
        if not relation.joined:
            select.args["from_"].set("this", relation.item)
        return query

    def _expand(self, select: exp.Select, relation: Relation) -> Iterator[exp.Expr]:
        """Yield the items, with every column of a star."""
        for item in select.expressions:
            if not item.is_star:
                yield item
            elif relation.joined:
                reason = "name the columns of a join, in place of the star"
                raise Refusal(reason, place(item))
            else:
                yield from (column(name, item) for name in relation.visible)


def _pass_time(results: Sequence[Result], relation: Relation) -> tuple[list[Result], set[str]]:
    """Leave the bounds of a window to the outer query, and pass the times that it needs."""
    times: dict[str, str] = {}
    kept: list[Result] = []
    for item, label in results:
        name = selects.last_name(item.unalias())
        if relation.window is not None and name in (*BOUNDS, "window_time"):
            relation.bounds[label or name] = name
            continue
        kept.append((item, label))
        if name in relation.times:
            times[label or name] = relation.times[name]
    relation.times = times
    passed = {*times.values()}
    if relation.window is not None:
        passed.add(_window_column(relation))
    return kept, passed - {label for _, label in kept}


def _group_by_window(select: exp.Select, relation: Relation) -> None:
    """Put the window's call in place of its bounds in GROUP BY."""
    window, time = relation.window, _window_column(relation)
    assert window is not None
    keys = selects.group_keys(select)
    if not {*BOUNDS} <= {*map(selects.last_name, keys)}:
        reason = "GROUP BY needs window_start and window_end, so that a window can close"
        raise Refusal(reason, window.offset)
    others = [key for key in keys if selects.last_name(key) not in (*BOUNDS, "window_time")]
    if window.function == "SESSION" and {*map(selects.last_name, others)} != {*window.partition}:
        reason = "sessions are those of the group: PARTITION BY needs the keys of GROUP BY"
        raise Refusal(reason, window.offset)
    made = call(window.function, column(time), *(each.copy() for each in window.intervals))
    made.meta["start"] = window.offset
    select.args["group"].set("expressions", [*others, made])


def _find_numbering(results: Sequence[Result]) -> selects.NumberedRows | None:
    """Return the item of a SELECT that numbers its rows, with the keys as the SELECT names them."""
    for item, name in results:
        if (found := selects.read_numbering(item)) is not None:
            shown = {selects.last_name(each.unalias()): label for each, label in results if label}
            keys = frozenset(shown[key] for key in found.keys if key in shown)
            return replace(found, name=name or "", keys=keys)
    return None


def _window_column(relation: Relation) -> str:
    """Return the column that a relation's window is over."""
    times = relation.source.times if relation.source else None
    assert relation.window is not None
    if times is None or times.column is None:
        reason = "windows are over a column of the row: a retraction must reach its window"
        raise Refusal(reason, relation.window.offset)
    return times.column


def _name(item: exp.Expr, name: str | None, change: Callable[[exp.Expr], exp.Expr]) -> exp.Expr:
    """Return a converted item with AS, unless it is a column of this name."""
    value = item.unalias().transform(change, copy=False).transform(_approximate, copy=False)
    is_named = isinstance(value, exp.Column) and not value.table and value.name == name
    return value if name is None or is_named else exp.Alias(this=value, alias=identifier(name))


def _approximate(tree: exp.Expr) -> exp.Expr:
    """Write APPROX_COUNT_DISTINCT(x) as COUNT(DISTINCT x), which is exact."""
    if function_name(tree) != "APPROX_COUNT_DISTINCT":
        return tree
    return call("COUNT", exp.Distinct(expressions=tree.expressions))


def _notes_of(item: exp.Expr, relation: Relation) -> Iterator[Note]:
    """Yield what an item means that is other than in Flink."""
    calls = [(function_name(each), each) for each in item.find_all(exp.Anonymous)]
    for name, each in calls:
        ordered = name in ("LISTAGG", "ARRAY_AGG") and item.find(exp.Order) is not None
        if name in _ANSWERS and not ordered:
            yield Note(f"{each.name}: {_ANSWERS[name]}", True, place(each))
    if any(name == "APPROX_COUNT_DISTINCT" for name, _ in calls):
        yield Note("COUNT(DISTINCT x) is exact", offset=place(item))
    kind = bound_kind(item.unalias(), relation)
    if kind and is_of_session(item.unalias(), relation):
        text = f"a bound of a session is {kind} here; in Flink a TIMESTAMP(3)"
        yield Note(text, True, place(item))
