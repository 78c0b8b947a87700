"""The query of an INSERT as the query of a job: one SELECT over one source, or over a join.

    FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(at), INTERVAL '1' MINUTES))   ──►  FROM orders
    GROUP BY shop, window_start, window_end   ──►  GROUP BY shop, TUMBLE(at, INTERVAL '1' MINUTES)
    FROM a_view                               ──►  FROM (its SELECT) AS a_view
    a view or derived table with GROUP BY     ──►  a job of its own, whose changelog is read

Results get the names of the sink's columns, because INSERT goes by position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from jobs.migrating.joined_views import merge_joined_view, merge_projection
from jobs.migrating.joins import (
    FromItem,
    refuse_intervals,
    refuse_side,
    refuse_versions,
    rename_joined,
    split_joins,
)
from jobs.migrating.problems import Note, NotTakenError
from jobs.migrating.relations import Query, Relation, WindowTable
from jobs.migrating.renaming import (
    WINDOWS,
    RenamedToken,
    names_of,
    rename_tokens,
    rename_window_times,
)
from jobs.migrating.select_parts import (
    NumberedRows,
    SelectParts,
    alias_of,
    has_aggregate,
    last_name,
    quote_name,
    read_numbering,
    read_select,
    split_list,
    write,
)
from jobs.migrating.sources import SourceTable, source_table
from jobs.migrating.statements import SqlFile
from jobs.migrating.tokens import Cursor, Token
from jobs.migrating.window_bounds import BOUNDS, bound_kind, is_of_session, write_bounds
from schemas.limits import QUERY_NESTING_MAX

_ANSWERS = dict.fromkeys(
    ("LISTAGG", "ARRAY_AGG"),
    "without ORDER BY the values are sorted; Flink has them in the order of arrival",
) | dict.fromkeys(
    ("VAR_POP", "VAR_SAMP", "VARIANCE", "STDDEV_POP", "STDDEV_SAMP", "STDDEV"),
    "a DOUBLE from exact sums; in Flink the type of its argument",
)
_TIES = "rows with equal sort keys are ordered by the selected columns; in Flink by arrival"


class QueryConverter:
    """Converts the queries of one INSERT."""

    def __init__(self, file: SqlFile, tokens: Sequence[Token], target: str) -> None:
        self._file = file
        self._target = target
        self._used, self._values = names_of(tokens, file)
        self._open: list[str] = []  # views that are being read
        self._depth = 0  # of views and subqueries

    def convert(self, tokens: Sequence[Token], names: Sequence[str]) -> Query:
        """Return the query of a job; `names` are those of its results, if they are known."""
        parts = merge_projection(read_select(tokens, self._file.sql), self._file)
        parts = merge_joined_view(parts, self._file)
        relation = self._relation(parts.source)
        self._rename(parts, relation)
        query = self._select(parts, relation, names)
        if query.numbered is not None:
            raise query.numbered.refusal
        if not query.aggregated:
            reason = "a job is a GROUP BY; this query has no GROUP BY and no aggregate"
            if relation.inner is not None:
                reason += f", and changes the results of {relation.inner.name}; change them there"
            raise NotTakenError(reason, parts.offset)
        return query

    # --- FROM -------------------------------------------------------------------------------

    def _relation(self, tokens: Sequence[Token]) -> Relation:
        items = split_joins(tokens)
        return self._read_join(items) if len(items) > 1 else self._read_item(tokens)

    def _read_join(self, items: Sequence[FromItem]) -> Relation:
        sides: list[Relation] = []
        for item in items:
            refuse_versions(item, self._file)
            sides.append(self._read_item(item.tokens))
            refuse_side(sides[-1], item.offset)
            refuse_intervals(item.condition, sides)
        join = Relation("", joined=sides)
        for table in join.sources:
            if quote_name(table.table.name) != table.table.name:
                reason = "the name of a joined table has letters, digits and _ only; rename it"
                raise NotTakenError(reason, table.table.offset)
        texts = []
        for item, side in zip(items, sides, strict=True):
            words = f" {item.words}" if item.words.endswith("JOIN") else item.words
            condition = write(rename_joined(item.condition, join))
            texts.append(" ".join(filter(None, (words, side.text, condition))))
        join.body = "".join(texts)
        return join

    def _read_item(self, tokens: Sequence[Token]) -> Relation:
        cursor = Cursor(tokens, self._file.sql)
        if cursor.take("TABLE", "("):
            relation = self._window_table(cursor)
            cursor.expect(")")
        elif cursor.peek() in WINDOWS and cursor.peek(1) == "(":
            relation = self._window_table(cursor)
        elif cursor.peek() == "(":
            cursor.expect("(")
            inside = cursor.until(")")
            cursor.expect(")")
            alias = tokens[-1].value if not cursor.done else f"{self._target}_inner"
            relation = self._read_subquery(inside, alias, ())
        else:
            name = cursor.name()
            relation = self._find_relation(name)
        cursor.take("AS")
        if not cursor.done:
            relation.alias = quote_name(cursor.next("name", "the name of the table").value)
        if not cursor.done:
            raise NotTakenError("this part of FROM is not known", cursor.offset)
        return relation

    def _find_relation(self, name: Token) -> Relation:
        view = self._file.views.get(name.value)
        if view is not None:
            if name.value in self._open:
                raise NotTakenError(f"the view {name.value} reads itself", name.offset)
            self._open.append(name.value)
            relation = self._read_subquery(view.query, name.value, view.columns)
            self._open.pop()
            return relation
        table = self._file.tables.get(name.value)
        if table is None:
            raise NotTakenError(f"there is no CREATE TABLE or VIEW of {name.value}", name.offset)
        source = source_table(table, self._used)
        body, alias = self._with_computed(source), quote_name(table.name)
        return Relation(body, alias, source, visible=source.visible, times=source.window_times)

    def _with_computed(self, source: SourceTable) -> str:
        """Return the table, with its computed columns if the query uses them."""
        name = quote_name(source.table.name)
        added = []
        for column in source.computed.values():
            used = self._values if column.name in source.window_times else self._used
            if column.name not in used:
                continue
            if any(token.word == "PROCTIME" for token in column.expression):
                reason = "PROCTIME() is no part of a row: a retraction would have another value"
                raise NotTakenError(reason, column.offset)
            expression = write(rename_tokens(column.expression, source.nested, source.replaced))
            added.append(f"{expression} AS {quote_name(column.name)}")
        for column in source.metadata.values():
            if column.name in self._used:
                reason = (
                    f"{column.name} is metadata of the message, and a retraction comes in another "
                    "message than its row; use a column of the row"
                )
                raise NotTakenError(reason, column.offset)
        if not added:
            return name
        items = ", ".join(["*", *added])
        return f"(SELECT {items} FROM {name})"  # noqa: S608 - text of a spec, which is validated

    def _read_subquery(self, tokens: Sequence[Token], alias: str, names: Sequence[str]) -> Relation:
        """Return a view or derived table: in place, or as a job of its own."""
        self._depth += 1
        if self._depth > QUERY_NESTING_MAX:
            reason = f"views and subqueries are nested more than {QUERY_NESTING_MAX} levels deep"
            raise NotTakenError(reason, tokens[0].offset if tokens else 0)
        parts = read_select(tokens, self._file.sql)
        inner = self._relation(parts.source)
        self._depth -= 1
        self._rename(parts, inner)
        query = self._select(parts, inner, names)
        if query.aggregated:
            query.name = alias
            return Relation(quote_name(alias), inner=query, visible=query.outputs)
        body = f"({query.one_line})"
        if query.one_line.removeprefix("SELECT * FROM ") == inner.text:
            body = inner.body
        inner = replace(inner, body=body, numbered=query.numbered)
        return replace(inner, alias=quote_name(alias), visible=query.outputs)

    def _window_table(self, cursor: Cursor) -> Relation:
        """Read TUMBLE(TABLE t, DESCRIPTOR(at), INTERVAL ..), with or without names."""
        function, offset = cursor.peek(), cursor.offset
        if function not in WINDOWS:
            raise NotTakenError(f"{function} is not a window of Flink's", offset)
        cursor.expect(function, "(")
        arguments = split_list(cursor.until(")"))
        cursor.expect(")")
        by_name = {
            part[0].word: part[2:] for part in arguments if len(part) > 2 and part[1].text == "=>"
        }
        order = {
            "TUMBLE": ("DATA", "TIMECOL", "SIZE", "OFFSET"),
            "HOP": ("DATA", "TIMECOL", "SLIDE", "SIZE", "OFFSET"),
            "CUMULATE": ("DATA", "TIMECOL", "STEP", "SIZE", "OFFSET"),
            "SESSION": ("DATA", "TIMECOL", "GAP"),
        }[function]
        named = by_name or dict(zip(order, arguments, strict=False))
        if any(name not in named for name in order if name != "OFFSET"):
            raise NotTakenError(f"{function} needs {', '.join(order)}", offset)
        table = Cursor(named["DATA"], self._file.sql)
        table.expect("TABLE")
        relation = self._find_relation(table.name())
        partition = tuple[str, ...]()
        if table.take("PARTITION", "BY"):
            partition = tuple(token.value for token in table.rest() if token.kind == "name")
        if relation.inner is not None:
            raise NotTakenError(
                "windows over the results of a GROUP BY have no counterpart", offset
            )
        self._check_time(relation, named["TIMECOL"])
        intervals = tuple(write(named[name]) for name in order[2:] if name in named)
        window = WindowTable(function, intervals, offset, partition)
        return replace(relation, window=window, visible=[*relation.visible, *BOUNDS])

    def _check_time(self, relation: Relation, descriptor: Sequence[Token]) -> None:
        name = descriptor[2] if len(descriptor) > 2 else descriptor[0]
        times = relation.source.times if relation.source else None
        if times is None:
            raise NotTakenError("the table has no WATERMARK FOR its time", name.offset)
        if name.value not in (times.name, times.column):
            raise NotTakenError(f"the watermark is over {times.name}, not over this", name.offset)

    # --- SELECT -----------------------------------------------------------------------------

    def _rename(self, parts: SelectParts, relation: Relation) -> None:
        """Write nested fields and the time column as the spec names them."""
        if relation.joined:
            refuse_intervals(_conditions_of_times(parts.where), relation.joined)
            parts.items = [rename_joined(item, relation) for item in parts.items]
            parts.where = rename_joined(parts.where, relation)
            parts.keys = [rename_joined(key, relation) for key in parts.keys]
            parts.having = rename_joined(parts.having, relation)
        if relation.source is None:
            return
        nested, names = relation.source.nested, relation.source.replaced | relation.bounds

        def rename(tokens: Sequence[Token]) -> list[Token]:
            return rename_tokens(rename_window_times(tokens, relation.times), nested, names)

        parts.items = [rename(item) for item in parts.items]
        parts.where = rename(parts.where)
        parts.keys = [rename(key) for key in parts.keys]
        parts.having = rename(parts.having)

    def _select(self, parts: SelectParts, relation: Relation, names: Sequence[str]) -> Query:
        items = self._expand(parts, relation)
        starred = not names and any(item[-1].text == "*" for item in parts.items)
        numbered = relation.numbered
        if numbered and (relation.window or not numbered.takes_first(parts.where)):
            raise numbered.refusal
        aggregated = bool(parts.keys) or parts.distinct or any(map(has_aggregate, items))
        aggregated = aggregated or numbered is not None
        legacy = any(key[0].word in WINDOWS and len(key) > 1 for key in parts.keys)
        if legacy and relation.joined:
            reason = "windows over a join have no counterpart: they do not close"
            raise NotTakenError(reason, parts.keys[0][0].offset)
        if aggregated and relation.window is not None:
            group = self._window_keys(parts, relation)
        else:
            group = [write(write_bounds(key, relation)) for key in parts.keys]
        if names and len(names) != len(items):
            reason = f"the SELECT has {len(items)} columns, and the target {len(names)}"
            raise NotTakenError(reason, parts.offset)
        labels: list[str | None] = [*names] or [alias_of(item)[1] for item in items]
        passed: set[str] = set()
        if not aggregated and not starred:
            items, labels, passed = self._pass_time(items, labels, relation)
        query = Query(relation, parts.offset, distinct=parts.distinct, group=group)
        query.where, query.having = write(parts.where), write(write_bounds(parts.having, relation))
        for item, name in zip(items, labels, strict=True):
            expression, alias = alias_of(item)
            query.outputs.append(name or write(expression))
            text = write(write_bounds(_approximate(expression), relation))
            query.expressions.append(text)
            query.items.append(_with_alias(text, expression, alias, name))
            query.notes += _notes_of(item)
            kind = bound_kind(expression, relation)
            if kind and is_of_session(expression, relation):
                text = f"a bound of a session is {kind} here; in Flink a TIMESTAMP(3)"
                query.notes.append(Note(text, True, item[0].offset))
        query.items += map(quote_name, sorted(passed))
        if starred and not aggregated:  # a star stays one, so that the time is in it
            written = {id(item): text for item, text in zip(items, query.items, strict=True)}
            query.items = [written.get(id(item), "*") for item in parts.items]
        if parts.having:
            text = "a group enters with +I and leaves with -D; Flink filters the changelog's rows"
            query.notes.append(Note(text, offset=parts.having[0].offset))
        query.keys = [
            name
            for name, item in zip(query.outputs, items, strict=True)
            if (not has_aggregate(item) if numbered is None else _column_of(item) in numbered.keys)
        ]
        if numbered:
            query.notes.append(Note(_TIES, True, numbered.over.offset))
        query.numbered = _find_numbering(items, query.outputs)
        if query.numbered and aggregated:
            raise query.numbered.refusal
        query.aggregated = aggregated
        query.windowed = aggregated and (relation.window is not None or legacy)
        return query

    def _expand(self, parts: SelectParts, relation: Relation) -> list[list[Token]]:
        """Return the items, with every column of a star."""
        items: list[list[Token]] = []
        for item in parts.items:
            if item[-1].text == "*" and (len(item) == 1 or item[-2].text == "."):
                at = item[0].offset
                if relation.joined:
                    raise NotTakenError("name the columns of a join, in place of the star", at)
                items += [[Token("name", quote_name(name), at)] for name in relation.visible]
            else:
                items.append(item)
        return items

    def _pass_time(
        self, items: list[list[Token]], labels: Sequence[str | None], relation: Relation
    ) -> tuple[list[list[Token]], list[str | None], set[str]]:
        """Leave the bounds of a window to the outer query, and pass the times that it needs."""
        times: dict[str, str] = {}
        kept: list[tuple[list[Token], str | None]] = []
        for item, label in zip(items, labels, strict=True):
            name = last_name(alias_of(item)[0])
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
        shown = [label for _, label in kept]
        return [item for item, _ in kept], shown, passed - {*shown}

    def _window_keys(self, parts: SelectParts, relation: Relation) -> list[str]:
        """Return the keys of GROUP BY, with the window's call for its bounds."""
        window, column = relation.window, _window_column(relation)
        assert window is not None
        named = {last_name(key) for key in parts.keys}
        if not set(BOUNDS) <= named:
            reason = "GROUP BY needs window_start and window_end, so that a window can close"
            raise NotTakenError(reason, window.offset)
        bounds = (*BOUNDS, "window_time")
        others = [key for key in parts.keys if last_name(key) not in bounds]
        if window.function == "SESSION":
            keys = {last_name(key) for key in others}
            if keys != set(window.partition):
                reason = "sessions are those of the group: PARTITION BY needs the keys of GROUP BY"
                raise NotTakenError(reason, window.offset)
        call = f"{window.function}({', '.join((quote_name(column), *window.intervals))})"
        return [*(write(write_bounds(key, relation)) for key in others), call]


def _column_of(item: Sequence[Token]) -> str:
    """Return the column that an item is; any other text for anything else."""
    return last_name(alias_of(item)[0])


def _find_numbering(items: Sequence[Sequence[Token]], names: Sequence[str]) -> NumberedRows | None:
    """Return the item of a SELECT that numbers its rows, with the keys as the SELECT names them."""
    for item, name in zip(items, names, strict=True):
        if (found := read_numbering(item, name)) is not None:
            shown = zip(items, names, strict=True)
            keys = {label for each, label in shown if _column_of(each) in found.keys}
            return replace(found, keys=frozenset(keys))
    return None


def _conditions_of_times(where: Sequence[Token]) -> Sequence[Token]:
    """Return WHERE if it may bound the times of a join; other comparisons of times are none."""
    return where if any(token.word in ("INTERVAL", "BETWEEN") for token in where) else ()


def _window_column(relation: Relation) -> str:
    """Return the column that a relation's window is over."""
    times = relation.source.times if relation.source else None
    assert relation.window is not None
    if times is None or times.column is None:
        reason = "windows are over a column of the row: a retraction must reach its window"
        raise NotTakenError(reason, relation.window.offset)
    return times.column


def _with_alias(text: str, expression: Sequence[Token], alias: str | None, name: str | None) -> str:
    """Return an expression with AS, unless it is a column of this name."""
    if name is None or (name == alias and len(expression) == 1 and text == quote_name(name)):
        return text
    if len(expression) == 1 and expression[0].value == name and text == expression[0].text:
        return text
    return f"{text} AS {quote_name(name)}"


def _approximate(tokens: Sequence[Token]) -> list[Token]:
    """Write APPROX_COUNT_DISTINCT(x) as COUNT(DISTINCT x), which is exact."""
    written: list[Token] = []
    for index, token in enumerate(tokens):
        if token.word == "APPROX_COUNT_DISTINCT":
            written.append(RenamedToken("name", "COUNT", token.offset, len(token.text)))
        elif token.text == "(" and index and tokens[index - 1].word == "APPROX_COUNT_DISTINCT":
            written.append(RenamedToken("mark", "(DISTINCT ", token.offset, 1))
        else:
            written.append(token)
    return written


def _notes_of(item: Sequence[Token]) -> list[Note]:
    """Return what the aggregates of an item mean that is other than in Flink."""
    notes = []
    words = [token.word for token in item]
    for index, token in enumerate(item):
        if token.word not in _ANSWERS or words[index + 1 : index + 2] != ["("]:
            continue
        if token.word in ("LISTAGG", "ARRAY_AGG") and "ORDER" in words[index:]:
            continue
        notes.append(Note(f"{token.text}: {_ANSWERS[token.word]}", True, token.offset))
    if "APPROX_COUNT_DISTINCT" in words:
        notes.append(Note("COUNT(DISTINCT x) is exact", offset=item[0].offset))
    return notes
