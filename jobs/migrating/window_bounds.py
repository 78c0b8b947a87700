"""The bounds of windows: TIMESTAMP(3) in Flink, and here of the type of the windows' column.

DATE_FORMAT(window_end, 'HH:mm') over ms BIGINT
    ──►  DATE_FORMAT(CAST(TO_TIMESTAMP_LTZ(window_end, 3) AS TIMESTAMP(3)), 'HH:mm')
"""

from __future__ import annotations

from collections.abc import Sequence

from jobs.migrating.relations import Relation
from jobs.migrating.renaming import WINDOWS, RenamedToken
from jobs.migrating.select_parts import write
from jobs.migrating.tokens import Cursor, Token

BOUNDS = ("window_start", "window_end")
_CALLS = [f"{window}_{end}" for window in WINDOWS for end in ("START", "END")]


def bound_kind(expression: Sequence[Token], relation: Relation) -> str:
    """Return the type of a window's bound; an empty text if it is Flink's, or no bound."""
    is_bound = _find_end(expression, 0, relation) == len(expression)
    return _kind_of_bounds(relation) if is_bound else ""


def write_bounds(tokens: Sequence[Token], relation: Relation) -> list[Token]:
    """Return tokens in which each bound is the TIMESTAMP(3) that it is in Flink.

    A session's stays as it is: it changes with each row, so no expression may be over it."""
    kind = _kind_of_bounds(relation)
    written: list[Token] = []
    at = 0
    while at < len(tokens):
        end = _find_end(tokens, at, relation) if kind else at
        if end == at or is_of_session(tokens[at:end], relation):
            written.append(tokens[at])
            at += 1
            continue
        text = write(tokens[at:end])
        instant = f"TO_TIMESTAMP_LTZ({text}, 3)" if kind == "BIGINT" else text
        width = tokens[end - 1].end - tokens[at].offset
        cast = f"CAST({instant} AS TIMESTAMP(3))"
        written.append(RenamedToken("name", cast, tokens[at].offset, width))
        at = end
    return written


def is_of_session(bound: Sequence[Token], relation: Relation) -> bool:
    window = relation.window
    by_table = window is not None and window.function == "SESSION"
    return by_table or bound[0].word.startswith("SESSION_")


def _kind_of_bounds(relation: Relation) -> str:
    """Return the type of the bounds of windows over a relation, if it is not Flink's."""
    source = relation.source
    if source is None or source.times is None or source.times.column is None:
        return ""
    kind = source.columns.get(source.times.column, "")
    return "" if kind.startswith("TIMESTAMP(") else kind


def _find_end(tokens: Sequence[Token], at: int, relation: Relation) -> int:
    """Return the end of the bound that begins at a token, a name or a call; `at` if none does."""
    texts = [token.text for token in tokens[at : at + 2]]
    if tokens[at].word in _CALLS and texts[1:] == ["("]:
        arguments = Cursor(tokens[at + 2 :], "").until(")")
        return min(at + 2 + len(arguments) + 1, len(tokens))
    end = at + 1
    while end + 1 < len(tokens) and tokens[end].text == ".":
        end += 2
    is_call = end < len(tokens) and tokens[end].text == "("
    is_bound = tokens[end - 1].value in BOUNDS and tokens[at].kind == "name" and not is_call
    return end if relation.window is not None and is_bound else at
