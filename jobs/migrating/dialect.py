"""Flink SQL for sqlglot: its queries as syntax trees, and such trees as text of a spec.

A keyword that has no counterpart is refused where it is. Every SELECT, item of FROM and INTERVAL
knows where it begins (`start` of its meta); all offsets count from the start of the file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from sqlglot import exp, generator
from sqlglot.tokenizer_core import TokenType

from jobs.core.sql.dialect import Refusal, RetallySql, check_nesting
from jobs.core.sql.printer import identifier_sql
from jobs.core.sql.problems import offset_of
from jobs.core.sql.window_calls import WINDOWS
from schemas.limits import QUERY_CHARACTERS_MAX

_REFUSED = {
    TokenType.UNION: "a job reads one query; write a job for each part, with sinks of their own",
    TokenType.INTERSECT: "a job reads one query",
    TokenType.EXCEPT: "a job reads one query",
    TokenType.MATCH_RECOGNIZE: "MATCH_RECOGNIZE has no counterpart",
    TokenType.LATERAL: "LATERAL has no counterpart: a row cannot choose the rows to join",
    TokenType.UNNEST: "UNNEST has no counterpart: a column has one value",
    TokenType.NATURAL: "NATURAL JOIN is not supported; name the columns, as in USING (id)",
    TokenType.RECURSIVE: "WITH RECURSIVE has no counterpart: a row is read once",
    TokenType.OVER: (
        "OVER windows have no counterpart; for the first rows of a group use TOP_K or ARG_MAX"
    ),
}
_REFUSED_CLAUSES = {
    TokenType.ORDER_BY: "a changing result has no order; sort where you read it, or use TOP_K",
    TokenType.WINDOW: "OVER windows have no counterpart",
    **dict.fromkeys(
        (TokenType.LIMIT, TokenType.FETCH, TokenType.OFFSET),
        "a changing result has no first rows; use TOP_K",
    ),
}
_MISPLACED_WITH = "WITH stands before the SELECT of an INSERT or of a view; move it there"
_ARGUMENTS = {
    "TUMBLE": ("DATA", "TIMECOL", "SIZE", "OFFSET"),
    "HOP": ("DATA", "TIMECOL", "SLIDE", "SIZE", "OFFSET"),
    "CUMULATE": ("DATA", "TIMECOL", "STEP", "SIZE", "OFFSET"),
    "SESSION": ("DATA", "TIMECOL", "GAP"),
}


@dataclass(frozen=True, slots=True)
class WindowTable:
    """A window table function, in the meta of its table."""

    function: str
    time: exp.Expr
    intervals: tuple[exp.Expr, ...]
    offset: int
    partition: tuple[str, ...] = ()


def over_refusal(offset: int) -> Refusal:
    return Refusal(_REFUSED[TokenType.OVER], offset)


def _refuse_clause(parser: Any) -> tuple[str, exp.Expr]:
    raise Refusal(_REFUSED_CLAUSES[parser._curr.token_type], parser._curr.start)


def _with_place(parse: Callable[..., Any]) -> Callable[..., Any]:
    """Make a method of a parser note where its tree begins, unless that is known."""

    def parse_with_place(parser: Any, *args: Any, **options: Any) -> Any:
        start = parser._curr.start
        tree = parse(parser, *args, **options)
        if tree is not None:
            tree.meta.setdefault("start", start)
        return tree

    return parse_with_place


class FlinkSql(RetallySql):
    """What of Flink's SQL a job may have."""

    class Tokenizer(RetallySql.Tokenizer):
        COMMANDS: ClassVar[set[TokenType]] = set()  # the text after them is tokens too
        NESTED_COMMENTS = False
        TOKENS_PRECEDING_HINT: ClassVar[set[TokenType]] = set(TokenType)
        KEYWORDS: ClassVar[dict[str, TokenType]] = {
            **RetallySql.Tokenizer.KEYWORDS,
            "BYTES": TokenType.VARBINARY,
            "MATCH_RECOGNIZE": TokenType.MATCH_RECOGNIZE,
            "MULTISET": TokenType.NESTED,
        }

    class Parser(RetallySql.Parser):
        QUERY_MODIFIER_PARSERS: ClassVar[dict[TokenType, Callable[..., Any]]] = {
            **{
                kind: RetallySql.Parser.QUERY_MODIFIER_PARSERS[kind]
                for kind in (TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING)
            },
            **dict.fromkeys(_REFUSED_CLAUSES, _refuse_clause),
        }

        def read_query(self) -> exp.Select:
            """Read the rest of the tokens, which is a SELECT."""
            left = self._tokens[self._index :]
            check_nesting(left)
            if sum(len(each.text) + 1 for each in left) > QUERY_CHARACTERS_MAX:
                reason = f"the query is longer than {QUERY_CHARACTERS_MAX} characters"
                raise Refusal(reason, left[0].start)
            for index, token in enumerate(left):
                words = [each.text.upper() for each in left[max(0, index - 3) : index]]
                if token.token_type is TokenType.WITH and words[-1:] == ["("]:
                    raise Refusal(_MISPLACED_WITH, token.start)
                # A numbering of rows is refused later, or taken.
                known = words[-1:] == ["."] or words == ["ROW_NUMBER", "(", ")"]
                if token.token_type in _REFUSED and not known:
                    raise Refusal(_REFUSED[token.token_type], token.start)
            tree = None
            if self._curr.token_type in (TokenType.SELECT, TokenType.WITH, TokenType.L_PAREN):
                tree = self._parse_select(nested=True)
            while isinstance(tree, exp.Subquery):
                tree = tree.this
            if not isinstance(tree, exp.Select):
                raise Refusal("expected SELECT here", self.offset)
            if self._curr:
                self.raise_error("a query ends here")
            return tree

        @property
        def offset(self) -> int:
            """Where the next token is; at the end of the statement, where that ends."""
            return self._curr.start if self._curr else self._prev.end + 1 if self._prev else 0

        _parse_select_query = _with_place(RetallySql.Parser._parse_select_query)
        _parse_interval = _with_place(RetallySql.Parser._parse_interval)
        _parse_version = _with_place(RetallySql.Parser._parse_version)

        def _build_predicate(
            self, klass: Any, this: Any, expression: Any, *args: Any, **options: Any
        ) -> exp.Expr:
            right = expression.this if isinstance(expression, exp.Not) else expression
            if isinstance(right, exp.Is):
                reason = "put parentheses around what IS tests: in Flink it tests the comparison"
                raise Refusal(reason, place(right))
            return super()._build_predicate(klass, this, expression, *args, **options)

        def _parse_window(self, this: exp.Expr | None, alias: bool = False) -> exp.Expr | None:
            start = self._curr.start
            tree = super()._parse_window(this, alias)
            if isinstance(tree, exp.Window):
                tree.meta["over"] = start
            return tree

        def _parse_types(self, *args: Any, **options: Any) -> exp.Expr | None:
            """Read a type; ROW<name type, ..> is none of sqlglot's."""
            if not options.get("schema") or not self._match(TokenType.ROW):
                return super()._parse_types(*args, **options)
            bracket = self._match(TokenType.LT)
            if not bracket:
                self._match_l_paren()
            fields = self._parse_csv(lambda: self._parse_column_def(self._parse_id_var()))
            if not self._match(TokenType.GT if bracket else TokenType.R_PAREN):
                self.raise_error("expected the end of ROW")
            return exp.DataType(this=exp.DType.STRUCT, expressions=fields, nested=True)

        @_with_place
        def _parse_table(self, *args: Any, **options: Any) -> exp.Expr | None:
            is_window = self._curr.text.upper() in WINDOWS
            if self._next.token_type is TokenType.L_PAREN and (
                is_window or self._curr.token_type is TokenType.TABLE
            ):
                return self._read_window_table(wrapped=not is_window)
            return super()._parse_table(*args, **options)

        def _read_window_table(self, *, wrapped: bool) -> exp.Expr:
            """Read TABLE(TUMBLE(TABLE t, DESCRIPTOR(at), INTERVAL ..)), its table with a window."""
            self._advance(2 if wrapped else 0)
            offset, function = self._curr.start, self._curr.text.upper()
            if function not in WINDOWS:
                raise Refusal(f"{function} is not a window of Flink's", offset)
            self._advance()
            arguments = self._parse_wrapped_csv(self._read_window_argument)
            if wrapped:
                self._match_r_paren()
            order = _ARGUMENTS[function]
            pairs = zip(order, arguments, strict=False)
            named = {each.name.upper() or name: each.expression for name, each in pairs}
            required = {*order} - {"OFFSET"}
            if not required <= named.keys() <= {*order} or len(named) < len(arguments):
                raise Refusal(f"{function} needs {', '.join(order)}, each once", offset)
            table, time = named["DATA"], named["TIMECOL"]
            if not isinstance(table, exp.Table):
                raise Refusal("expected TABLE here", offset_of(table))
            time = next(iter(time.expressions), time)
            intervals = tuple(named[name] for name in order[2:] if name in named)
            keys = table.args.pop("partition", None)
            partition = tuple(each.name for each in keys.find_all(exp.Identifier)) if keys else ()
            table.meta["window"] = WindowTable(function, time, intervals, offset, partition)
            table.set("alias", self._parse_table_alias())
            return table

        def _read_window_argument(self) -> exp.Kwarg:
            name = ""
            if self._next.token_type is TokenType.FARROW:
                name = self._curr.text
                self._advance(2)
            if self._match(TokenType.TABLE):
                value: exp.Expr | None = self._parse_table_parts()
                if value is not None and self._match(TokenType.PARTITION_BY):
                    value.args["partition"] = self._parse_bitwise()
            else:
                value = self._parse_bitwise()
            if value is None:
                self.raise_error("expected an argument")
            return exp.Kwarg(this=exp.Var(this=name), expression=value)

    class Generator(generator.Generator):
        """Writes words as users do: a NOT IN (1), TIMESTAMP '..', FILTER (WHERE ..)."""

        TYPE_MAPPING: ClassVar[dict[exp.DType, str]] = {
            exp.DType.TEXT: "STRING",
            exp.DType.TIMESTAMPLTZ: "TIMESTAMP_LTZ",
            exp.DType.NESTED: "MULTISET",
            exp.DType.STRUCT: "ROW",
        }

        def not_sql(self, expression: exp.Not) -> str:
            inner = expression.this
            kinds = (exp.Is, exp.In, exp.Between)
            if not isinstance(inner, kinds) or inner.args.get("symmetric"):
                return super().not_sql(expression)
            left = self.sql(inner, "this")
            word, _, rest = self.sql(inner).removeprefix(f"{left} ").partition(" ")
            words = f"{word} NOT" if word == "IS" else f"NOT {word}"
            return f"{left} {words} {rest}"

        def cast_sql(self, expression: exp.Cast, safe_prefix: str | None = None) -> str:
            if isinstance(expression.to, exp.DataType):  # of a literal: other types are text
                return f"{self.sql(expression, 'to')} {self.sql(expression, 'this')}"
            return super().cast_sql(expression, safe_prefix)

        def filter_sql(self, expression: exp.Filter) -> str:
            where = self.sql(expression, "expression").strip()
            return f"{self.sql(expression, 'this')} FILTER ({where})"

        def trim_sql(self, expression: exp.Trim) -> str:
            words = (expression.args.get("position"), self.sql(expression, "expression"))
            before = " ".join(filter(None, words))
            return f"TRIM({before and before + ' FROM '}{self.sql(expression, 'this')})"

        def anonymous_sql(self, expression: exp.Anonymous) -> str:
            name = expression.name.upper()
            if name not in ("JSON_ARRAYAGG", "JSON_OBJECTAGG"):
                return super().anonymous_sql(expression)
            *parts, last = expression.expressions
            value, *keys = map(self.sql, parts)
            key = f"KEY {keys[0]} VALUE " if keys else ""
            return f"{name}({key}{value} {last.name} ON NULL)"


FLINK = FlinkSql()


def write(tree: exp.Expr) -> str:
    """Return a tree as text on one line."""
    return tree.sql(dialect=FLINK, normalize_functions=False, comments=False).strip()


def identifier(name: str) -> exp.Identifier:
    return exp.Identifier(this=name, quoted=identifier_sql(name) != name)


def column(name: str, like: exp.Expr | None = None) -> exp.Column:
    """Return a column, at the place of another tree."""
    made = exp.Column(this=identifier(name))
    if like is not None:
        made.meta["start"] = place(like)
    return made


def call(name: str, *arguments: exp.Expr | int) -> exp.Anonymous:
    """Return a call; numbers are literals."""
    values = [exp.Literal.number(each) if isinstance(each, int) else each for each in arguments]
    return exp.Anonymous(this=name, expressions=values)


def cast(tree: exp.Expr, kind: object) -> exp.Cast:
    return exp.Cast(this=tree, to=exp.Var(this=str(kind)))


def place(tree: exp.Expr) -> int:
    """Return the offset at which a tree begins."""
    return int(tree.meta["start"]) if "start" in tree.meta else offset_of(tree)
