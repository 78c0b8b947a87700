"""The statements of a Flink SQL file: tables, views, settings, inserts.

Statements that only show or choose something are skipped; all others are not supported.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from jobs.migrating.problems import NotTakenError, Problem
from jobs.migrating.tokens import Cursor, Token, split_statements, text_of, tokenize

_SKIPPED = {"USE", "SHOW", "DESCRIBE", "DESC", "EXPLAIN", "DROP", "RESET", "QUIT", "EXIT", "END"}
_NO_COUNTERPART = {
    "ADD": "there are no user-defined functions; write the query without the jar",
    "UPDATE": "a job changes no tables; its results follow its source",
    "DELETE": "a job changes no tables; its results follow its source",
    "ALTER": "write the table as it is after this ALTER",
}


@dataclass(frozen=True, slots=True)
class Option:
    key: str
    value: str
    offset: int


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column: physical with a type, computed from an expression, or metadata of the message."""

    name: str
    offset: int
    type: tuple[Token, ...] = ()
    expression: tuple[Token, ...] = ()
    metadata: str | None = None


@dataclass(frozen=True, slots=True)
class Table:
    name: str
    offset: int
    columns: tuple[TableColumn, ...]
    options: dict[str, Option]
    primary_key: tuple[str, ...] = ()
    watermark: tuple[str, tuple[Token, ...], int] | None = None  # column, expression, offset

    def column(self, name: str) -> TableColumn | None:
        return next((each for each in self.columns if each.name == name), None)


@dataclass(frozen=True, slots=True)
class View:
    name: str
    offset: int
    columns: tuple[str, ...]
    query: tuple[Token, ...]


@dataclass(frozen=True, slots=True)
class Insert:
    target: str
    offset: int
    columns: tuple[str, ...]
    query: tuple[Token, ...]
    views: dict[str, View]  # of its WITH
    shows: bool = False  # a SELECT, whose job has no sink; `target` is the name of the job


@dataclass(slots=True)
class SqlFile:
    """The statements of a file, and what of it is not supported."""

    sql: str
    tables: dict[str, Table] = field(default_factory=dict)
    views: dict[str, View] = field(default_factory=dict)
    settings: dict[str, Option] = field(default_factory=dict)
    inserts: list[Insert] = field(default_factory=list)
    selects: list[Insert] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def read_sql_file(sql: str) -> SqlFile:
    file = SqlFile(sql)
    try:
        statements = list(split_statements(tokenize(sql)))
    except NotTakenError as error:
        file.problems.append(error.problem)
        return file
    for tokens in statements:
        try:
            _refuse_hints(tokens)
            _read_statement(Cursor(tokens, sql), file)
        except NotTakenError as error:
            file.problems.append(error.problem)
    if not file.inserts:
        file.inserts = file.selects
    else:
        reason = "a SELECT beside INSERT INTO only shows rows; remove it, or write INSERT INTO"
        file.problems += [Problem(reason, each.offset) for each in file.selects]
    return file


def _refuse_hints(tokens: Sequence[Token]) -> None:
    for token in tokens:
        if token.text.startswith("/*+"):
            reason = "hints are not supported; write the options into CREATE TABLE"
            raise NotTakenError(reason, token.offset)


def _read_statement(cursor: Cursor, file: SqlFile) -> None:
    cursor.take("EXECUTE")
    begins = cursor.take("BEGIN", "STATEMENT", "SET") or cursor.take("STATEMENT", "SET", "BEGIN")
    if begins and cursor.done:
        return
    offset, word = cursor.offset, cursor.peek()
    if cursor.take("SET"):
        if not cursor.done:
            option = _read_setting(cursor)
            file.settings[option.key] = option
    elif cursor.take("CREATE"):
        _read_create(cursor, file)
    elif cursor.take("INSERT"):
        if cursor.take("OVERWRITE"):
            raise NotTakenError("INSERT OVERWRITE is for batch jobs; write INSERT INTO", offset)
        cursor.expect("INTO")
        cursor.take("TABLE")
        file.inserts.append(_read_insert(cursor))
    elif word in ("SELECT", "WITH"):
        views, query = _split_with(cursor.rest(), file.sql)
        name = f"query-{len(file.selects) + 1}" if file.selects else "query"
        file.selects.append(Insert(name, offset, (), tuple(query), views, shows=True))
    elif word not in _SKIPPED:
        reason = _NO_COUNTERPART.get(word, f"a statement of {word or 'this kind'} is not known")
        raise NotTakenError(reason, offset)


def _read_setting(cursor: Cursor) -> Option:
    """Read `SET 'key' = 'value'`, or the older form without quotes."""
    offset = cursor.offset
    key = cursor.until("=")
    cursor.expect("=")
    value = cursor.rest()
    if not key or not value:
        raise NotTakenError("write SET 'key' = 'value'", offset)
    texts = [
        part[0].value if len(part) == 1 else text_of(part, cursor.sql) for part in (key, value)
    ]
    return Option(texts[0], texts[1], offset)


def _read_insert(cursor: Cursor) -> Insert:
    target = cursor.name()
    if cursor.peek() == "PARTITION":
        raise NotTakenError("a sink has no partitions by column", cursor.offset)
    columns = cursor.names() if cursor.peek() == "(" and cursor.peek(1) != "SELECT" else []
    query = cursor.rest()
    if cursor.peek() == "VALUES":
        raise NotTakenError("VALUES has no counterpart: a job reads a topic", cursor.offset)
    if not query or query[0].word not in ("SELECT", "WITH", "("):
        raise NotTakenError("expected SELECT here", cursor.offset)
    views, query = _split_with(query, cursor.sql)
    return Insert(target.value, target.offset, tuple(columns), tuple(query), views)


def _split_with(query: list[Token], sql: str) -> tuple[dict[str, View], list[Token]]:
    """Return the views that WITH defines before a query, and the query."""
    cursor = Cursor(query, sql)
    views: dict[str, View] = {}
    if not cursor.take("WITH"):
        return views, query
    if cursor.peek() == "RECURSIVE":
        raise NotTakenError("WITH RECURSIVE has no counterpart: a row is read once", cursor.offset)
    while not views or cursor.take(","):
        name = cursor.name()
        columns = cursor.names() if cursor.peek() == "(" else []
        cursor.expect("AS", "(")
        inside = cursor.until(")")
        cursor.expect(")")
        views[name.value] = View(name.value, name.offset, tuple(columns), tuple(inside))
    return views, cursor.rest()


def _read_create(cursor: Cursor, file: SqlFile) -> None:
    offset = cursor.offset
    if cursor.take("OR"):
        cursor.expect("REPLACE")
    cursor.take("TEMPORARY")
    if cursor.peek() in ("CATALOG", "DATABASE"):
        return
    kind = cursor.peek()
    if kind not in ("TABLE", "VIEW"):
        reason = f"CREATE {kind} has no counterpart"
        if "FUNCTION" in (kind, cursor.peek(1)):
            reason = "there are no user-defined functions; write the query without it"
        raise NotTakenError(reason, offset)
    cursor.expect(kind)
    cursor.take("IF", "NOT", "EXISTS")
    if kind == "TABLE":
        table = _read_table(cursor, file)
        file.tables[table.name] = table
    else:
        view = _read_view(cursor)
        inner, query = _split_with(list(view.query), file.sql)
        for each in inner.values():
            if each.name in file.views or each.name in file.tables:
                reason = f"there is another table or view {each.name}; give this one another name"
                raise NotTakenError(reason, each.offset)
        file.views |= inner
        file.views[view.name] = replace(view, query=tuple(query))


def _read_view(cursor: Cursor) -> View:
    name = cursor.name()
    columns = cursor.names() if cursor.peek() == "(" else []
    if cursor.take("COMMENT"):
        cursor.next("text", "a comment")
    cursor.expect("AS")
    return View(name.value, name.offset, tuple(columns), tuple(cursor.rest()))


def _read_table(cursor: Cursor, file: SqlFile) -> Table:
    table = _read_columns(cursor, cursor.name())
    table = replace(table, options=_read_table_options(cursor))
    if cursor.take("LIKE"):
        table = _read_like(cursor, table, file)
    if cursor.peek() == "AS":
        reason = "CREATE TABLE AS is not supported; write CREATE TABLE, and INSERT INTO it"
        raise NotTakenError(reason, cursor.offset)
    if not cursor.done:
        reason = "this part of CREATE TABLE is not supported; write the table out"
        raise NotTakenError(reason, cursor.offset)
    if not table.columns:
        raise NotTakenError("the table has no columns; write them out", table.offset)
    return table


def _read_columns(cursor: Cursor, name: Token) -> Table:
    """Return a table with its columns, primary key and watermark, which LIKE may leave out."""
    columns: list[TableColumn] = []
    key: list[str] = []
    watermark = None
    if not cursor.take("("):
        return Table(name.value, name.offset, (), {})
    while not cursor.take(")"):
        offset = cursor.offset
        if cursor.take("WATERMARK", "FOR"):
            column = cursor.name().value
            cursor.expect("AS")
            watermark = (column, tuple(cursor.until(",", ")")), offset)
        elif cursor.take("CONSTRAINT") or cursor.peek() == "PRIMARY":
            if cursor.peek() != "PRIMARY":
                cursor.name()
            cursor.expect("PRIMARY", "KEY")
            key = cursor.names()
            cursor.take("NOT", "ENFORCED")
        else:
            column_found, is_key = _read_column(cursor)
            columns.append(column_found)
            key += [column_found.name] if is_key else []
        if cursor.peek() != ")":
            cursor.expect(",")
    return Table(name.value, name.offset, tuple(columns), {}, tuple(key), watermark)


def _read_like(cursor: Cursor, own: Table, file: SqlFile) -> Table:
    """Return a table with what it takes over from another one; what it has itself wins."""
    name = cursor.name()
    base = file.tables.get(name.value)
    if base is None:
        raise NotTakenError(f"there is no CREATE TABLE of {name.value}", name.offset)
    chosen: dict[str, str] = {}  # what, and INCLUDING, EXCLUDING or OVERWRITING
    if cursor.take("("):
        while not cursor.take(")"):
            how = cursor.next("name", "INCLUDING, EXCLUDING or OVERWRITING")
            chosen[cursor.next("name", "what to take over").word] = how.word

    def takes(what: str) -> bool:
        return chosen.get(what, chosen.get("ALL")) != "EXCLUDING"

    columns = {
        column.name: column
        for column in base.columns
        if (takes("GENERATED") or not column.expression)
        and (takes("METADATA") or column.metadata is None)
    } | {column.name: column for column in own.columns}
    return replace(
        own,
        columns=tuple(columns.values()),
        options=(base.options if takes("OPTIONS") else {}) | own.options,
        primary_key=own.primary_key or (base.primary_key if takes("CONSTRAINTS") else ()),
        watermark=own.watermark or (base.watermark if takes("WATERMARKS") else None),
    )


def _read_column(cursor: Cursor) -> tuple[TableColumn, bool]:
    name = cursor.next("name", "a column")
    if cursor.take("AS"):
        expression = cursor.until(",", ")", "COMMENT")
        if not expression:
            raise NotTakenError("expected an expression here", cursor.offset)
        _skip_comment(cursor)
        return TableColumn(name.value, name.offset, expression=tuple(expression)), False
    kind = list(_type_tokens(cursor))
    if not kind:
        raise NotTakenError("expected a type here", cursor.offset)
    metadata, is_key = None, False
    while cursor.peek() not in (",", ")", ""):
        if cursor.take("NOT", "NULL") or cursor.take("NULL") or cursor.take("VIRTUAL"):
            pass
        elif cursor.take("METADATA"):
            metadata = name.value
            if cursor.take("FROM"):
                metadata = cursor.next("text", "the key of the metadata").value
        elif cursor.take("PRIMARY", "KEY"):
            is_key = True
            cursor.take("NOT", "ENFORCED")
        elif cursor.peek() == "COMMENT":
            _skip_comment(cursor)
        else:
            raise NotTakenError("this part of a column is not known", cursor.offset)
    return TableColumn(name.value, name.offset, tuple(kind), metadata=metadata), is_key


def _type_tokens(cursor: Cursor) -> Iterator[Token]:
    ends = {",", ")", "NOT", "NULL", "METADATA", "PRIMARY", "COMMENT", "VIRTUAL", ""}
    depth = 0
    while depth or cursor.peek() not in ends:
        if cursor.done:
            return
        word = cursor.peek()
        depth += (word in ("(", "<")) - (word in (")", ">"))
        yield cursor.tokens[cursor.at]
        cursor.at += 1


def _skip_comment(cursor: Cursor) -> None:
    if cursor.take("COMMENT"):
        cursor.next("text", "a comment")


def _read_table_options(cursor: Cursor) -> dict[str, Option]:
    _skip_comment(cursor)
    if cursor.take("PARTITIONED", "BY"):
        cursor.names()
    options: dict[str, Option] = {}
    if cursor.take("WITH"):
        cursor.expect("(")
        while not cursor.take(")"):
            key = cursor.next("text", "an option in quotes")
            cursor.expect("=")
            value = cursor.next("text", "a value in quotes")
            options[key.value] = Option(key.value, value.value, key.offset)
            if cursor.peek() != ")":
                cursor.expect(",")
    return options
