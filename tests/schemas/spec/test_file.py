"""Specs as files: positions of problems, and the traps and bombs of YAML."""

from __future__ import annotations

import json
import pickle
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import limits
from schemas.spec.file import Problem, SpecError, load_spec, read_text, spec_text

HEAD = "name: items\nsource: {topic: shop.product}\nquery: SELECT a FROM t\n"
SPEC = HEAD + "columns: {a: INT}\n"


def error_of(text: str) -> SpecError:
    with pytest.raises(SpecError) as caught:
        load_spec(text)
    return caught.value


def value_of(text: str) -> Any:
    return read_text(text, "<text>").value


def test_problem_of_a_file_is_one_line_with_file_line_and_column(tmp_path: Path) -> None:
    file = tmp_path / "items.yaml"
    file.write_text(SPEC + "minibatch:\n  latency: 1s\n  size: 0\n")
    with pytest.raises(SpecError) as caught:
        load_spec(file)
    assert str(caught.value) == f"{file}:7:3: minibatch.size: must be greater than 0"
    assert caught.value.problems == [Problem("minibatch.size", "must be greater than 0", 7, 3)]


def test_problems_come_in_the_order_of_the_file() -> None:
    error = error_of(SPEC + "mirror: 0\nwatermark: {delay: x, emit_every: 0}\nstate: {tl: 1}\n")
    assert [(p.line, p.column, p.path) for p in error.problems] == [
        (5, 1, "mirror"),
        (6, 13, "watermark.delay"),
        (6, 23, "watermark.emit_every"),
        (7, 9, "state"),
    ]


def test_missing_key_stands_at_the_section_that_lacks_it() -> None:
    problem = error_of(SPEC + "watermark:\n  align: {group: g}\n").problems[0]
    assert (problem.path, problem.line, problem.column) == ("watermark.align.max_drift", 6, 3)


def test_problem_in_a_list_stands_at_its_item() -> None:
    text = SPEC.replace("topic: shop.product", "topics: [ok, 'not ok']")
    problem = error_of(text).problems[0]
    assert (problem.path, problem.line, problem.column) == ("source.topics.1", 2, 23)


def test_problem_of_a_mapping_has_a_path_and_no_place() -> None:
    with pytest.raises(SpecError) as caught:
        load_spec({"name": "items"})
    assert caught.value.problems[0].line is None
    assert "source: is required; add it" in str(caught.value).splitlines()


def test_json_is_read_like_yaml_with_tabs_and_escapes() -> None:
    spec = load_spec(SPEC)
    assert load_spec(json.dumps(spec.document(), indent="\t")) == spec
    assert value_of('{"a": "\\ud83d\\ude00\\/\\u00e9"}') == {"a": "😀/é"}


def test_problem_in_json_has_its_place() -> None:
    text = json.dumps({**load_spec(SPEC).document(), "mirror": "x"}, indent="\t")
    line = next(n for n, part in enumerate(text.splitlines(), 1) if '"mirror"' in part)
    problem = error_of(text).problems[0]
    assert (problem.path, problem.line, problem.column) == ("mirror", line, 2)


def test_words_that_older_yaml_takes_for_booleans_are_names_here() -> None:
    spec = load_spec(HEAD + "columns: {on: INT, no: INT, y: INT, off: INT, true: INT, null: INT}\n")
    assert list(spec.columns) == ["on", "no", "y", "off", "true", "null"]
    assert list(load_spec(spec_text(spec)).columns) == list(spec.columns)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1:30", "1:30"),
        ("010", "010"),
        ("0x1F", "0x1F"),
        ("1_000", "1_000"),
        ("yes", "yes"),
        ("2026-01-31", "2026-01-31"),
        ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00Z"),
        ("<<", "<<"),
        ("'5'", "5"),
        ("5", 5),
        ("-5", -5),
        ("0.5", 0.5),
        ("1e3", 1000.0),
        ("True", True),
        ("~", None),
        ("", None),
    ],
)
def test_plain_scalar_is_read_by_yaml_1_2(written: str, value: object) -> None:
    assert value_of(f"a: {written}") == {"a": value}


def test_huge_number_is_no_work() -> None:
    assert isinstance(value_of("a: " + "9" * 200_000)["a"], str)
    assert value_of("a: 1e99999") == {"a": "1e99999"}


def test_half_a_type_in_a_flow_mapping_says_to_quote_it() -> None:
    error = error_of(HEAD + "columns: {price: DECIMAL(10,2)}\n")
    assert "inside { } a comma ends a value" in error.problems[0].reason


@pytest.mark.parametrize(
    ("text", "reason", "place"),
    [
        ("", "is empty", (1, 1)),
        ("# nothing\n", "is empty", (2, 1)),
        ("- a\n", "must be a mapping; its keys are name, labels, sources, source", (1, 1)),
        ("just text", "must be a mapping; its keys are name, labels, sources, source", (1, 1)),
        ("a: 1\nb: 2\na: 3\n", "key 'a' is written twice", (3, 1)),
        ('{"a": 1, "a": 2}', "key 'a' is written twice", (1, 10)),
        ("a: 1\n---\nb: 2\n", "a second document begins here", (2, 1)),
        ("a: !!python/object/apply:os.system [id]\n", "tags (!...) are not allowed", (1, 4)),
        ("a: !!str 5\n", "tags (!...) are not allowed", (1, 4)),
        ("!x {a: 1}\n", "tags (!...) are not allowed", (1, 1)),
        ("a: *b\n", "an alias (*...) needs an anchor", (1, 4)),
        ("a: &a [*a]\n", "an alias (*...) needs an anchor", (1, 8)),
        ("? [a]\n: 1\n", "a key must be plain text", (1, 3)),
        ("a: [1, 2\n", "is not valid YAML here", (2, 1)),
        ("a: 1\n\tb: 2\n", "is not valid YAML here", (2, 1)),
        ("a: b: c\n", "is not valid YAML here", (1, 5)),
        ("a: 1\nb: \x01\n", "a character that YAML does not allow", (2, 4)),
        ('a: "\\ud83d"', "half of a surrogate pair", (1, 4)),
    ],
)
def test_unreadable_text_is_refused_at_its_place(
    text: str, reason: str, place: tuple[int, int]
) -> None:
    problem = error_of(text).problems[0]
    assert reason in problem.reason
    assert (problem.line, problem.column) == place


def test_anchor_and_alias_stand_for_the_same_value() -> None:
    spec = load_spec(SPEC + "mirror: &m 5s\nretention: *m\n")
    assert spec.mirror_ms == spec.retention_ms == 5_000


def test_alias_bomb_is_refused_before_it_grows() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    for i in range(1, 30):
        lines.append(f"a{i}: &a{i} [" + ", ".join([f"*a{i - 1}"] * 10) + "]")
    began = time.monotonic()
    assert "holds more than 20000 values" in error_of("\n".join(lines)).problems[0].reason
    assert time.monotonic() - began < 2


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 30_000, "- " * 1_000 + "a"])
def test_deep_nesting_is_refused(text: str) -> None:
    assert "is nested deeper than 32" in error_of(text).problems[0].reason


def test_deep_mapping_and_itself_holding_one_are_refused() -> None:
    deep: dict[str, Any] = {}
    deep["a"] = deep
    with pytest.raises(SpecError, match="is nested deeper than 32"):
        load_spec(deep)


def test_large_text_and_large_file_are_refused(tmp_path: Path) -> None:
    text = SPEC + "# " + "é" * (limits.SPEC_BYTES_MAX // 2)
    assert "is larger than" in error_of(text).problems[0].reason
    file = tmp_path / "large.yaml"
    file.write_text(text)
    with pytest.raises(SpecError, match="is larger than"):
        load_spec(file)


def test_only_so_many_problems_are_named() -> None:
    error = error_of(SPEC + "".join(f"k{i}: 1\n" for i in range(150)))
    assert len(error.problems) == limits.PROBLEMS_MAX + 1
    assert error.problems[-1].reason == "and 50 more problems"


def test_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"none\.yaml: cannot be read: No such file"):
        load_spec(tmp_path / "none.yaml")
    with pytest.raises(SpecError, match="cannot be read"):
        load_spec(tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"name: caf\xe9\n")
    with pytest.raises(SpecError, match="is not UTF-8 text: see byte 9"):
        load_spec(tmp_path / "latin.yaml")


def test_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "spec.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + SPEC.encode())
    assert load_spec(file) == load_spec(SPEC)


def test_text_is_never_taken_for_a_path(tmp_path: Path) -> None:
    file = tmp_path / "spec.yaml"
    file.write_text(SPEC)
    with pytest.raises(SpecError, match="must be a mapping"):
        load_spec(str(file))


def test_control_characters_of_a_key_do_not_reach_the_terminal() -> None:
    text = str(error_of(SPEC + '"a\\nb\\e[31m\\u2028\\u202e": 1\n'))
    assert len(text.splitlines()) == 1
    assert text.isprintable()
    assert r"'a\nb\x1b[31m\u2028\u202e'" in text


def test_error_survives_a_process_boundary() -> None:
    error = error_of(SPEC + "mirror: 0\n")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


SQL_TEXT = st.text(min_size=1, max_size=60).filter(
    lambda text: bool(text.strip()) and "\0" not in text and text.isprintable()
)
WORDS = st.one_of(
    st.from_regex(r"\A[A-Za-z0-9._-]{1,12}\Z"),
    st.sampled_from(["1e3", "08", "0x1F", "1_000", "on", "null", "true", "-1", "1.5", "1.", "0o7"]),
).filter(lambda text: text not in (".", ".."))


@given(SQL_TEXT, WORDS, st.integers(1, 10**12), st.floats(1e-9, 1))
def test_written_spec_reads_back_as_the_same(
    query: str, word: str, duration_ms: int, fraction: float
) -> None:
    spec = load_spec(
        {
            "name": "items",
            "source": {"topic": word, "group": word},
            "columns": {"null": "INT", "a": "DECIMAL(10,2)", "e1": "TIMESTAMP_LTZ(9)"},
            "query": query,
            "mirror": f"{duration_ms}ms",
            "max_bad_fraction": fraction,
        }
    )
    assert load_spec(spec_text(spec)) == spec
    assert load_spec(json.dumps(spec.document())) == spec


@given(st.text(alphabet="ab:{}[],&*!-\n\t '\"#?|>%@\\0\x07é😀", max_size=60))
def test_any_text_is_read_or_refused_with_a_place(text: str) -> None:
    try:
        read_text(text, "<text>")
    except SpecError as error:
        assert error.problems[0].line is not None
        assert len(str(error).splitlines()) == 1
