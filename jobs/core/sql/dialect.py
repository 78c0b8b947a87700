"""Parse query text with sqlglot: a SQL close to Flink's, with a position for every error.

    text ──► tokens ──► only known punctuation, bounded nesting ──► syntax tree of one SELECT
                 └──────────────── Refusal(message, offset) ◄───────────────┘

sqlglot accepts far more than retally; `select` decides node by node what a tree may contain. This
module only makes sqlglot safe to call: for any text the answer is a tree or a Refusal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, ClassVar

from sqlglot import exp, parser, tokens
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ErrorLevel, ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from schemas.limits import QUERY_CHARACTERS_MAX, QUERY_NESTING_MAX

PUNCTUATION = {*"(),.+-*/%=<>;[]", "<>", "!=", "<=", ">=", "||", "::", "=="}
LITERALS = (TokenType.STRING, TokenType.NUMBER, TokenType.HEX_STRING, TokenType.IDENTIFIER)
PREFIXES = (TokenType.NOT, TokenType.DASH, TokenType.PLUS)
# The words of a query that users misspell, and how they go on.
CLAUSES = {
    **{word: word for word in ("SELECT", "FROM", "WHERE", "HAVING", "FILTER", "DISTINCT")},
    **{word: f"{word} BY" for word in ("GROUP", "ORDER")},
}


class Refusal(Exception):
    """Why a query is refused; `offset` counts characters from the start of the text."""

    def __init__(self, message: str, offset: int | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset
        self.hint = hint


class RetallySql(Dialect):
    """Identifiers in backticks or double quotes, strings in single quotes, no known functions.

    Every call becomes a name with arguments, so that only our closed list defines the functions.
    """

    class Tokenizer(tokens.Tokenizer):
        IDENTIFIERS: ClassVar[list[str | tuple[str, str]]] = ["`", '"']
        HEX_STRINGS: ClassVar[list[str | tuple[str, str]]] = [("x'", "'"), ("X'", "'")]

    class Parser(parser.Parser):
        FUNCTIONS: ClassVar[dict[str, Callable[..., Any]]] = {}
        # LIST(x ORDER BY y)[1] is an item of an aggregate.
        ARRAY_CONSTRUCTORS: ClassVar[dict[str, type[exp.Func]]] = {"ARRAY": exp.Array}
        # A keyword of MySQL; here it is a window function.
        FUNC_TOKENS: ClassVar[set[TokenType]] = {*parser.Parser.FUNC_TOKENS, TokenType.SESSION}
        NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {
            "CASE": parser.Parser.NO_PAREN_FUNCTION_PARSERS["CASE"]
        }
        FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {
            "CAST": lambda self: self._read_cast(lenient=False),
            "TRY_CAST": lambda self: self._read_cast(lenient=True),
            "SAFE_CAST": lambda self: self._read_cast(lenient=True),
            "FLOOR": lambda self: self._read_call("FLOOR", "TO", "DATE_TRUNC"),
            "POSITION": lambda self: self._read_call("POSITION", "IN", "POSITION"),
            "JSON_ARRAYAGG": lambda self: self._read_json_call("JSON_ARRAYAGG"),
            "JSON_OBJECTAGG": lambda self: self._read_json_call("JSON_OBJECTAGG"),
            **{
                name: parser.Parser.FUNCTION_PARSERS[name]
                for name in ("EXTRACT", "SUBSTRING", "TRIM")
            },
        }

        COLUMN_OPERATORS: ClassVar[dict[TokenType, Callable[..., Any] | None]] = {
            **parser.Parser.COLUMN_OPERATORS,
            TokenType.DCOLON: lambda self, this, to: exp.Cast(this=this, to=to),
        }

        def raise_error(self, message: str, token: Any = None) -> None:
            at = token or self._curr or self._prev
            raise ParseError(message, [{"offset": at.start if at else 0}])

        def _read_call(self, name: str, word: str, otherwise: str) -> exp.Expr:
            """Read FLOOR(t TO HOUR) or POSITION(x IN s): a word instead of the comma."""
            opening = self._tokens[self._index - 2]
            operand = self._parse_bitwise()
            if self._match_text_seq(word):
                second = self._parse_bitwise()
                arguments = [second, operand] if word == "TO" else [operand, second]
                call = exp.Anonymous(this=otherwise, expressions=arguments)
            else:
                arguments = [operand]
                while self._match(TokenType.COMMA):
                    arguments.append(self._parse_disjunction())
                call = exp.Anonymous(this=name, expressions=[each for each in arguments if each])
            return self.expression(call, token=opening)

        def _read_json_call(self, name: str) -> exp.Expr:
            """Read JSON_ARRAYAGG(x ORDER BY y NULL ON NULL) or JSON_OBJECTAGG(KEY k VALUE v)."""
            opening = self._tokens[self._index - 2]
            is_object = name == "JSON_OBJECTAGG"
            if is_object:
                self._match_text_seq("KEY")
            arguments = [self._parse_disjunction()]
            if is_object and (self._match_text_seq("VALUE") or self._match(TokenType.COMMA)):
                arguments.insert(0, self._parse_disjunction())
            elif not is_object:
                arguments = [self._parse_order(arguments[0])]
            on_null = "NULL" if is_object else "ABSENT"
            for word in ("NULL", "ABSENT"):
                if self._match_text_seq(word, "ON", "NULL"):
                    on_null = word
            arguments.append(exp.Literal.string(on_null))
            call = exp.Anonymous(this=name, expressions=[each for each in arguments if each])
            return self.expression(call, token=opening)

        def _read_cast(self, lenient: bool) -> exp.Expr:
            """Read a cast; its type stays text for `SqlType.parse`, as in a job's columns."""
            opening = self._tokens[self._index - 2]
            operand = self._parse_disjunction()
            if not self._match(TokenType.ALIAS):
                self.raise_error("expected AS and a type")
            first, depth = self._curr, 0
            while self._curr and (depth or self._curr.token_type is not TokenType.R_PAREN):
                depth += self._curr.token_type is TokenType.L_PAREN
                depth -= self._curr.token_type is TokenType.R_PAREN
                self._advance()
            node = (exp.TryCast if lenient else exp.Cast)(this=operand, to=self._read_type(first))
            return self.expression(node, token=opening)

        def _parse_dcolon(self) -> exp.Expr:
            """Read the type in x::type: a word, and its parameters."""
            first = self._curr
            if first.text.isidentifier():
                self._advance()
            if self._match(TokenType.L_PAREN):
                while self._match(TokenType.NUMBER) or self._match(TokenType.COMMA):
                    pass
                self._match_r_paren()
            elif first.text.upper() in ("NUMERIC", "DECIMAL", "DEC"):
                message = f"engines disagree about the digits of x::{first.text}"
                raise Refusal(message, first.start, "x::DECIMAL(p, s)")
            return self._read_type(first)

        def _read_type(self, first: Token) -> exp.Var:
            """Return the text from a token up to the last one that was read."""
            if self._curr is first:
                self.raise_error("expected a type")
            return exp.Var(this=self.sql[first.start : self._prev.end + 1]).update_positions(first)


def parse_select(sql: str) -> exp.Select:
    """Return the syntax tree of the only SELECT in `sql`."""
    if len(sql) > QUERY_CHARACTERS_MAX:
        raise Refusal(f"the query is longer than {QUERY_CHARACTERS_MAX} characters", 0)
    dialect = RetallySql()
    read = tokenize(sql, dialect)
    _check_tokens(read)
    if read and read[-1].text == ";":
        read.pop()
    if not read or read[0].token_type not in (TokenType.SELECT, TokenType.WITH):
        start = read[0].start if read else 0
        message = "the query is empty"
        if read:
            message = f"a query starts with SELECT, not with {read[0].text[:40]!r}"
        raise Refusal(message, start, "SELECT k, SUM(v) FROM t GROUP BY k")
    with refuse_errors(read, sql):
        trees = dialect.parser(error_level=ErrorLevel.IMMEDIATE).parse(read, sql)
    if len(trees) != 1 or not isinstance(trees[0], exp.Select):
        kind = type(trees[0]).__name__.upper() if trees else "nothing"
        raise Refusal(f"a query must be one SELECT, this is {kind}", 0)
    return trees[0]


def tokenize(sql: str, dialect: Dialect) -> list[Token]:
    try:
        return dialect.tokenize(sql)
    except TokenError:
        message = "a quote or comment is opened and never closed"
        raise Refusal(message, _unclosed_offset(sql)) from None


@contextmanager
def refuse_errors(read: Sequence[Token], sql: str, what: str = "query") -> Iterator[None]:
    """Turn every error of sqlglot in the parsing of some tokens into a Refusal."""
    start = read[0].start if read else 0
    try:
        yield
    except ParseError as error:
        offset = error.errors[0].get("offset", start) if error.errors else start
        offset, hint = _find_misspelling(read, offset)
        raise Refusal(f"cannot read the {what} near {_near(sql, offset)}", offset, hint) from None
    except RecursionError:
        raise Refusal(f"the {what} is nested too deeply", start) from None
    except (AttributeError, IndexError, KeyError, TypeError, ValueError, AssertionError):
        # A text on which the parser crashes is not SQL.
        raise Refusal(f"cannot read the {what}", start) from None


def check_nesting(read: Sequence[Token]) -> None:
    """Refuse deep nesting before the parser, which is recursive, reads the tokens."""
    depth = run = 0
    for token in read:
        kind = token.token_type
        depth += kind in (TokenType.L_PAREN, TokenType.CASE)
        depth -= kind in (TokenType.R_PAREN, TokenType.END)
        run = run + 1 if kind in PREFIXES else 0
        if depth + run > QUERY_NESTING_MAX:
            message = f"the query is nested more than {QUERY_NESTING_MAX} levels deep"
            raise Refusal(message, token.start)


def _check_tokens(read: list[Token]) -> None:
    """Refuse unknown punctuation and deep nesting before the lenient parser reads the tokens."""
    for index, token in enumerate(read):
        kind, text = token.token_type, token.text
        word = text.replace("_", "a").replace(" ", "a").isalnum()
        last = index == len(read) - 1
        if (
            kind not in LITERALS
            and not word
            and (text not in PUNCTUATION or (text == ";" and not last))
        ):
            hint = "one query for each job" if text == ";" else None
            raise Refusal(f"{text!r} is not part of this SQL", token.start, hint)
        before = [each.token_type for each in read[max(0, index - 2) : index + 1]]
        if before == [TokenType.FROM, TokenType.TABLE, TokenType.L_PAREN]:
            message = "a window is not a table; it is in GROUP BY"
            hint = "GROUP BY TUMBLE(at, INTERVAL '5' MINUTE)"
            raise Refusal(message, read[index - 1].start, hint)
    check_nesting(read)


def _find_misspelling(read: Sequence[Token], offset: int) -> tuple[int, str | None]:
    """Return the offset of a misspelled clause at `offset` or just before it, and the clause.

    sqlglot takes `GRUOP` in `FROM t GRUOP BY k` for an alias of t, and fails at the word after it.
    """
    upto = [token for token in read if token.start <= offset][-2:]
    for token in reversed(upto):
        if token.token_type is not TokenType.VAR:
            continue
        # `GROUP BY` is one token, so that a lone GROUP is a mistake too.
        if near := get_close_matches(token.text.upper(), CLAUSES, n=1, cutoff=0.7):
            return token.start, CLAUSES[near[0]]
    return offset, None


def _near(sql: str, offset: int) -> str:
    rest = sql[offset : offset + 30].split("\n", maxsplit=1)[0].strip()
    return repr(rest) if rest else "its end"


def _unclosed_offset(sql: str) -> int:
    """Return the offset of the quote or comment without an end."""
    at = 0
    while at < len(sql):
        if sql.startswith("--", at):
            closed = sql.find("\n", at)
            closed = len(sql) if closed < 0 else closed
        elif sql.startswith("/*", at):
            closed = sql.find("*/", at + 2)
        elif sql[at] in "'\"`":
            closed = sql.find(sql[at], at + 1)
        else:
            at += 1
            continue
        if closed < 0:
            return at
        at = closed + 1
    return 0
