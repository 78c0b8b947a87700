"""The items of a FROM that joins, and the joins that have no counterpart.

FROM orders AS o LEFT JOIN customers AS c ON o.customer_id = c.id, regions
    ──►  orders AS o │ LEFT JOIN, customers AS c, o.customer_id = c.id │ `,`, regions
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from jobs.migrating.problems import NotTakenError
from jobs.migrating.relations import Relation
from jobs.migrating.renaming import rename_tokens
from jobs.migrating.statements import SqlFile
from jobs.migrating.tokens import Cursor, Token

_KINDS = ("INNER", "LEFT", "RIGHT", "FULL", "CROSS", "NATURAL")
_STREAMS = ("kafka", "upsert-kafka")
_WINDOW = "window joins have no counterpart: join the rows, and count them by time in GROUP BY"
_OF_RESULTS = (
    "a join with the results of a GROUP BY is not supported; write a job for {name}, and join its "
    "changelog (format: changelog-json) in the spec of a second one"
)
_NESTED = "a join in a derived table or in parentheses is not supported; join in the outer query"
_INTERVAL = (
    "interval joins have no counterpart: a job keeps the rows of both tables for good, and drops "
    "no late ones; join without the times, or write the condition into the spec by hand"
)
_TEMPORAL = (
    "temporal joins have no counterpart: a job joins the current rows, and corrects its results "
    "when they change; join without FOR SYSTEM_TIME AS OF"
)
_LOOKUP = (
    "lookup joins have no counterpart: {name} is not a table of Kafka; bring its changes into a "
    "topic, and join that without FOR SYSTEM_TIME AS OF"
)


@dataclass(slots=True)
class FromItem:
    """One item of FROM; the first one has no words of a join before it."""

    words: str  # LEFT JOIN, or a comma
    tokens: list[Token]
    offset: int
    condition: list[Token] = field(default_factory=list)  # with ON or USING


def split_joins(tokens: Sequence[Token]) -> list[FromItem]:
    """Return the items of FROM; refuse joins of other kinds."""
    items = [FromItem("", [], tokens[0].offset if tokens else 0)]
    depth, at = 0, 0
    while at < len(tokens):
        token = tokens[at]
        depth += (token.word == "(") - (token.word == ")")
        words = [] if depth else _words_of_join(tokens, at)
        if words:
            if words[0] == "NATURAL":
                reason = "NATURAL JOIN is not supported; name the columns, as in USING (id)"
                raise NotTakenError(reason, token.offset)
            items.append(FromItem(" ".join(words), [], token.offset))
            at += len(words)
            continue
        item = items[-1]
        starts = depth == 0 and item.words and token.word in ("ON", "USING")
        (item.condition if item.condition or starts else item.tokens).append(token)
        at += 1
    return items


def _words_of_join(tokens: Sequence[Token], at: int) -> list[str]:
    """Return the words of a join that begin at a token; LEFT( and RIGHT( are functions."""
    if tokens[at].word == ",":
        return [","]
    words = []
    for token in tokens[at : at + 4]:
        words.append(token.word)
        if token.word == "JOIN":
            return words
        if token.word not in (*_KINDS, "OUTER"):
            break
    return []


def refuse_versions(item: FromItem, file: SqlFile) -> None:
    """Refuse a join with a version of a table, and one with an array."""
    for index, token in enumerate(item.tokens):
        if token.word == "UNNEST":
            raise NotTakenError("UNNEST has no counterpart: a column has one value", token.offset)
        if token.word != "SYSTEM_TIME":
            continue
        name = Cursor(item.tokens, file.sql).name().value
        table = file.tables.get(name)
        connector = None if table is None else table.options.get("connector")
        is_stream = connector is None or connector.value in _STREAMS
        reason = _TEMPORAL if is_stream else _LOOKUP.format(name=name)
        raise NotTakenError(reason, item.tokens[max(0, index - 1)].offset)


def refuse_side(side: Relation, offset: int) -> None:
    """Refuse what may stand alone in FROM, and not in a join."""
    if side.joined:
        raise NotTakenError(_NESTED, offset)
    if side.window is not None:
        raise NotTakenError(_WINDOW, offset)
    if side.numbered is not None:
        raise side.numbered.refusal
    if side.inner is not None:
        raise NotTakenError(_OF_RESULTS.format(name=side.inner.name), offset)


def refuse_intervals(condition: Sequence[Token], sides: Sequence[Relation]) -> None:
    """Refuse a condition over the times, of WATERMARK FOR, of two tables."""
    times = {
        (side.alias.strip("`"), side.source.times.name)
        for side in sides
        if side.source is not None and side.source.times is not None
    }
    named = {
        (first.value, last.value)
        for first, point, last in zip(condition, condition[1:], condition[2:], strict=False)
        if point.text == "."
    }
    if len(times & named) > 1:
        raise NotTakenError(_INTERVAL, condition[0].offset)


def rename_joined(tokens: Sequence[Token], join: Relation) -> list[Token]:
    """Return tokens with the times of the tables of a join under their names of the spec."""
    nested: dict[tuple[str, ...], str] = {}
    names: dict[str, str] = {}
    for side in join.joined:
        if side.source is not None:
            nested |= side.source.nested
            names |= side.source.replaced
    if rename_tokens(tokens, nested, {}) != list(tokens):
        reason = (
            "fields of a ROW in a join are not supported; name them in a derived table, as in "
            "(SELECT who.city AS city FROM t) AS t"
        )
        raise NotTakenError(reason, tokens[0].offset)
    for name in names:
        if tokens and sum(name in side.visible for side in join.joined) > 1:
            reason = f"{name} is a time of one table and a column of another one; rename one"
            raise NotTakenError(reason, tokens[0].offset)
    return rename_tokens(tokens, {}, names)
