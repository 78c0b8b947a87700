"""The statements of a Flink SQL file, in their order: tables, views, settings, inserts.

Statements that only show or choose something are skipped; all others are not supported.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from sqlglot import exp
from sqlglot.errors import ErrorLevel
from sqlglot.tokenizer_core import Token, TokenType

from jobs.core.sql.dialect import Refusal, refuse_errors, tokenize
from jobs.migrating.dialect import FLINK, FlinkSql, place
from jobs.migrating.problems import Problem

_SKIPPED = {"USE", "SHOW", "DESCRIBE", "DESC", "EXPLAIN", "QUIT", "EXIT", "END"}
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
    type: exp.DataType | None = None
    expression: exp.Expr | None = None
    metadata: str | None = None


@dataclass(slots=True)
class Table:
    name: str
    offset: int
    columns: list[TableColumn] = field(default_factory=list)
    options: dict[str, Option] = field(default_factory=dict)
    primary_key: list[str] = field(default_factory=list)
    watermark: tuple[str, exp.Expr, int] | None = None  # column, expression, offset

    def column(self, name: str) -> TableColumn | None:
        return next((each for each in self.columns if each.name == name), None)


@dataclass(frozen=True, slots=True)
class View:
    """A view; a query that is not supported is a problem of those who read it."""

    name: str
    offset: int
    columns: Sequence[str]
    query: exp.Select | Refusal

    def select(self) -> exp.Select:
        """Return the SELECT, for the caller to change."""
        if isinstance(self.query, Refusal):
            raise self.query
        return self.query.copy()


@dataclass(frozen=True, slots=True)
class Insert:
    target: str
    offset: int
    columns: Sequence[str]
    query: exp.Select
    views: dict[str, View]  # of its WITH
    shows: bool = False  # a SELECT, whose job has no sink; `target` is the name of the job


@dataclass(slots=True)
class SqlFile:
    """What the statements so far have defined, and what of them is not supported."""

    sql: str
    tables: dict[str, Table] = field(default_factory=dict)
    views: dict[str, View] = field(default_factory=dict)
    settings: dict[str, Option] = field(default_factory=dict)
    inserts: list[Insert] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    inserting: bool = False  # whether it has an INSERT INTO

    def drop(self, name: str) -> None:
        self.tables.pop(name, None)
        self.views.pop(name, None)


def read_inserts(file: SqlFile) -> Iterator[Insert]:
    """Yield each INSERT when `file` has what the statements before it have defined."""
    statements: list[list[Token]] = [[]]
    try:
        tokens = tokenize(file.sql, FLINK)
    except Refusal as error:
        file.problems.append(Problem.of(error))
        return
    for token in tokens:
        if token.token_type is TokenType.SEMICOLON:
            statements.append([])
        else:
            statements[-1].append(token)
    words = [token.text.upper() for token in tokens]
    file.inserting = ("INSERT", "INTO") in pairwise(words)
    for tokens in filter(None, statements):
        known = len(file.inserts)
        try:
            with refuse_errors(tokens, file.sql, "statement"):
                parser = StatementParser(dialect=FLINK, error_level=ErrorLevel.IMMEDIATE)
                parser.read_into(file, tokens)
        except Refusal as error:
            file.problems.append(Problem.of(error))
        yield from file.inserts[known:]


class StatementParser(FlinkSql.Parser):
    """Reads one statement into a file."""

    file: SqlFile

    def read_into(self, file: SqlFile, tokens: list[Token]) -> None:
        self.file = file
        self._parse(lambda _: self._read_statement(), tokens, file.sql)

    def _read_statement(self) -> None:
        hint = next((each for each in self._tokens if each.token_type is TokenType.HINT), None)
        if hint is not None:
            reason = "hints are not supported; write the options into CREATE TABLE"
            raise Refusal(reason, hint.start)
        take, file = self._match_text_seq, self.file
        take("EXECUTE")
        begins = take("BEGIN", "STATEMENT", "SET") or take("STATEMENT", "SET", "BEGIN")
        if begins and not self._curr:
            return
        offset, word = self.offset, self._curr.text.upper() if self._curr else ""
        if take("SET"):
            if self._curr:
                option = self._read_setting()
                file.settings[option.key] = option
        elif take("RESET"):
            if self._curr:
                file.settings.pop(self._take_text(self._tokens[self._index :]), None)
            else:
                file.settings.clear()
        elif take("CREATE"):
            self._read_create()
        elif take("DROP"):
            take("TEMPORARY")
            if take("TABLE") or take("VIEW"):
                take("IF", "EXISTS")
                file.drop(self._read_name().name)
            self._skip_rest()
        elif take("INSERT"):
            if take("OVERWRITE"):
                raise Refusal("INSERT OVERWRITE is for batch jobs; write INSERT INTO", offset)
            self._expect("INTO")
            take("TABLE")
            target = self._read_name()
            if take("PARTITION"):
                raise Refusal("a sink has no partitions by column", self._prev.start)
            columns = self._read_names() if self._next.token_type is not TokenType.SELECT else []
            if self._match(TokenType.VALUES):
                reason = "VALUES has no counterpart: a job reads a topic"
                raise Refusal(reason, self._prev.start)
            file.inserts.append(self._read_query(target.name, place(target), columns))
        elif word in ("SELECT", "WITH"):
            if file.inserting:
                reason = (
                    "a SELECT beside INSERT INTO only shows rows; remove it, or write INSERT INTO"
                )
                raise Refusal(reason, offset)
            number = len(file.inserts) + 1
            name = f"query-{number}" if number > 1 else "query"
            file.inserts.append(self._read_query(name, offset, shows=True))
        elif word in _SKIPPED:
            self._skip_rest()
        else:
            reason = _NO_COUNTERPART.get(word, f"a statement of {word or 'this kind'} is not known")
            raise Refusal(reason, offset)

    # --- words and names --------------------------------------------------------------------

    def _expect(self, *words: str) -> None:
        if not self._match_text_seq(*words):
            raise Refusal(f"expected {' '.join(words)} here", self.offset)

    def _read_name(self) -> exp.Expr:
        """Return the last part of a name such as `catalog`.`database`.`table`."""
        offset = self.offset
        name = self._parse_id_var()
        if name is None:
            raise Refusal("expected a name here", offset)
        name.meta["start"] = offset
        return self._read_name() if self._match(TokenType.DOT) else name

    def _read_names(self) -> list[str]:
        """Return the names of a list in parentheses, if one comes next."""
        if not self._match(TokenType.L_PAREN, advance=False):
            return []
        return [each.name for each in self._parse_wrapped_csv(self._read_name)]

    def _read_text(self, what: str) -> Token:
        if not self._match(TokenType.STRING):
            raise Refusal(f"expected {what} here", self.offset)
        return self._prev

    def _skip_comment(self) -> bool:
        found = self._match_text_seq("COMMENT")
        return found and bool(self._read_text("a comment"))

    def _skip_rest(self) -> None:
        self._advance(len(self._tokens) - self._index)

    def _read_setting(self) -> Option:
        """Read `SET 'key' = 'value'`, or the older form without quotes."""
        offset, left = self.offset, self._tokens[self._index :]
        kinds = [each.token_type for each in left]
        at = kinds.index(TokenType.EQ) if TokenType.EQ in kinds else 0
        parts = (left[:at], left[at + 1 :])
        if not all(parts):
            raise Refusal("write SET 'key' = 'value'", offset)
        key, value = map(self._take_text, parts)
        return Option(key, value, offset)

    def _take_text(self, tokens: Sequence[Token]) -> str:
        """Return the text of some tokens, of which one may be in quotes; read all that is left."""
        self._skip_rest()
        return tokens[0].text if len(tokens) == 1 else self._find_sql(tokens[0], tokens[-1])

    def _read_query(
        self, target: str, offset: int, columns: Sequence[str] = (), *, shows: bool = False
    ) -> Insert:
        query = self.read_query()
        return Insert(target, offset, columns, query, self._pop_views(query), shows)

    # --- CREATE -----------------------------------------------------------------------------

    def _read_create(self) -> None:
        offset, take = self.offset, self._match_text_seq
        replaces = take("OR", "REPLACE")
        take("TEMPORARY")
        kind = self._curr.text.upper()
        if kind in ("CATALOG", "DATABASE"):
            return self._skip_rest()
        if kind not in ("TABLE", "VIEW"):
            reason = f"CREATE {kind} has no counterpart"
            if "FUNCTION" in (kind, self._next.text.upper()):
                reason = "there are no user-defined functions; write the query without it"
            raise Refusal(reason, offset)
        self._advance()
        keeps, name = take("IF", "NOT", "EXISTS"), self._read_name()
        if keeps and self._is_known(name.name):
            return self._skip_rest()
        if replaces:
            self.file.drop(name.name)
        try:
            self._require_new(name.name, place(name))
        except Refusal as error:  # what reads the name is refused too: which one is meant?
            self.file.drop(name.name)
            self.file.views[name.name] = View(name.name, place(name), (), error)
            raise
        if kind == "VIEW":
            self._read_view(name)
        else:
            self.file.tables[name.name] = self._read_table(name)

    def _is_known(self, name: str) -> bool:
        return name in self.file.tables or name in self.file.views

    def _require_new(self, name: str, offset: int) -> None:
        if self._is_known(name):
            reason = f"there is another table or view {name}; give this one another name"
            raise Refusal(reason, offset)

    def _pop_views(self, query: exp.Select) -> dict[str, View]:
        """Take the views that WITH defines before a query out of it."""
        found: dict[str, View] = {}
        with_ = query.args.pop("with_", None)
        for each in () if with_ is None else with_.expressions:
            name, alias = each.alias, each.args["alias"]
            if not isinstance(each.this, exp.Select):
                raise Refusal("expected SELECT here", place(each.this))
            self._require_new(name, place(alias))
            if name in found:
                raise Refusal(f"WITH defines {name} twice; rename one", place(alias))
            columns = [column.name for column in alias.args.get("columns") or ()]
            found[name] = View(name, place(alias), columns, each.this)
        return found

    def _read_view(self, name: exp.Expr) -> None:
        file, columns = self.file, self._read_names()
        self._skip_comment()
        self._expect("AS")
        query: exp.Select | Refusal
        try:
            with refuse_errors(self._tokens[self._index :], file.sql):
                query = self.read_query()
        except Refusal as error:
            query = error
            self._skip_rest()
        else:
            file.views |= self._pop_views(query)
        file.views[name.name] = View(name.name, place(name), columns, query)

    def _read_table(self, name: exp.Expr) -> Table:
        table = Table(name.name, place(name))
        if self._match(TokenType.L_PAREN, advance=False):
            self._parse_wrapped_csv(lambda: self._read_element(table))
        self._skip_comment()
        if self._match(TokenType.PARTITION_BY):
            reason = "PARTITIONED BY has no counterpart: columns are read from the files, not paths"
            raise Refusal(reason, self._prev.start)
        if self._match_text_seq("WITH"):
            self._parse_wrapped_csv(lambda: self._read_option(table))
        if self._match_text_seq("LIKE"):
            table = self._read_like(table)
        if self._match_text_seq("AS", advance=False):
            reason = "CREATE TABLE AS is not supported; write CREATE TABLE, and INSERT INTO it"
            raise Refusal(reason, self.offset)
        if self._curr:
            reason = "this part of CREATE TABLE is not supported; write the table out"
            raise Refusal(reason, self.offset)
        if not table.columns:
            raise Refusal("the table has no columns; write them out", table.offset)
        return table

    def _read_element(self, table: Table) -> None:
        """Read a column, the primary key or the watermark."""
        offset, take = self.offset, self._match_text_seq
        if take("WATERMARK", "FOR"):
            column = self._read_name().name
            self._expect("AS")
            table.watermark = (column, self._read_expression(), offset)
            return
        constrained = take("CONSTRAINT") and self._read_name()
        if self._match(TokenType.PRIMARY_KEY):
            table.primary_key = self._read_names()
            take("NOT", "ENFORCED")
        elif constrained:
            raise Refusal("expected PRIMARY KEY here", self.offset)
        else:
            table.columns.append(self._read_column(table))

    def _read_expression(self) -> exp.Expr:
        offset, expression = self.offset, self._parse_disjunction()
        if expression is None:
            raise Refusal("expected an expression here", offset)
        return expression

    def _read_column(self, table: Table) -> TableColumn:
        take, offset, name = self._match_text_seq, self.offset, self._read_name().name
        if take("AS"):
            expression = self._read_expression()
            self._skip_comment()
            return TableColumn(name, offset, expression=expression)
        at, kind = self.offset, self._parse_types(schema=True)
        if not isinstance(kind, exp.DataType):
            raise Refusal("expected a type here", at)
        metadata = None
        while self._curr.token_type not in (TokenType.COMMA, TokenType.R_PAREN) and self._curr:
            if take("NOT", "NULL") or take("NULL") or take("VIRTUAL") or self._skip_comment():
                pass
            elif take("METADATA"):
                metadata = self._read_text("the key of the metadata").text if take("FROM") else name
            elif self._match(TokenType.PRIMARY_KEY):
                table.primary_key.append(name)
                take("NOT", "ENFORCED")
            else:
                raise Refusal("this part of a column is not known", self.offset)
        return TableColumn(name, offset, kind, metadata=metadata)

    def _read_option(self, table: Table) -> None:
        key = self._read_text("an option in quotes")
        self._expect("=")
        value = self._read_text("a value in quotes").text
        table.options[key.text] = Option(key.text, value, key.start)

    def _read_like(self, own: Table) -> Table:
        """Return a table with what it takes over from another one; what it has itself wins."""
        name = self._read_name()
        base = self.file.tables.get(name.name)
        if base is None:
            raise Refusal(f"there is no CREATE TABLE of {name.name}", place(name))
        chosen: dict[str, str] = {}  # what, and INCLUDING, EXCLUDING or OVERWRITING
        if self._match(TokenType.L_PAREN):
            while not self._match(TokenType.R_PAREN):
                how = self._read_name().name.upper()
                chosen[self._read_name().name.upper()] = how

        def takes(what: str) -> bool:
            return chosen.get(what, chosen.get("ALL")) != "EXCLUDING"

        columns = {
            column.name: column
            for column in base.columns
            if (takes("GENERATED") or column.expression is None)
            and (takes("METADATA") or column.metadata is None)
        } | {column.name: column for column in own.columns}
        return replace(
            own,
            columns=list(columns.values()),
            options=(base.options if takes("OPTIONS") else {}) | own.options,
            primary_key=own.primary_key or (base.primary_key if takes("CONSTRAINTS") else []),
            watermark=own.watermark or (base.watermark if takes("WATERMARKS") else None),
        )
