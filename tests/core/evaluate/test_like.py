"""LIKE: the texts that match a pattern, and the time that it takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.core.evaluate.expressions import evaluator
from jobs.core.plan.tree import KeyValue
from jobs.core.plan.typing_rules import make_like
from schemas.types.sql_types import STRING
from tests.support.examples import examples

CHARACTERS = "ab%_\\\n.*(é😀"


def matches(text: str, pattern: str, escape: str | None = None) -> bool:
    found = evaluator(make_like(KeyValue(0, STRING), pattern, escape), 1)((text,))
    assert isinstance(found, bool)
    return found


def naive(text: str, pattern: str) -> bool:
    """Match character by character, as the SQL standard defines it."""
    if not pattern:
        return not text
    if pattern[0] == "%":
        return any(naive(text[start:], pattern[1:]) for start in range(len(text) + 1))
    return text != "" and pattern[0] in ("_", text[0]) and naive(text[1:], pattern[1:])


@examples(400)
@given(st.text(CHARACTERS, max_size=8), st.text(CHARACTERS, max_size=7))
def test_a_pattern_takes_what_the_standard_says(text: str, pattern: str) -> None:
    assert matches(text, pattern) is naive(text, pattern)


@examples(200)
@given(st.text(CHARACTERS, max_size=8))
def test_an_escaped_text_takes_itself_alone(text: str) -> None:
    escaped = "".join("!" + each if each in "%_!" else each for each in text)
    assert matches(text, escaped, "!")
    assert not matches(text + "x", escaped, "!")


@pytest.mark.parametrize(
    "pattern",
    ["%a%a%a%a%a%a%b", "%" + "a%" * 50 + "b", "%a_%_a%a_%b", "a%" * 100 + "b%", "%_" * 60 + "b"],
)
def test_a_pattern_with_many_wildcards_ends_soon_on_a_text_that_nearly_matches(
    pattern: str,
) -> None:
    """With backtracking, this pattern would exceed the time limit of the test."""
    text = "a" * 400
    assert not matches(text, pattern)
    assert matches(text + "b", pattern)
