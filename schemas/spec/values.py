"""The value types of a spec: names, durations, SQL types, instants and so on.

the user's text ── validate, or explain ──► our value ── document ──► the user's text
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Annotated

import re2
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    WithJsonSchema,
)

from schemas import limits
from schemas.spec.duration import duration_text, parse_count, parse_duration
from schemas.table.changelog import PROGRESS_SUFFIX
from schemas.table.object_path import SCHEME, ObjectPath
from schemas.types.moments import format_instant, parse_instant
from schemas.types.sql_types import SqlType

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False  # on standard error; the exception suffices


def name_matcher(pattern: str) -> Callable[[str], bool]:
    """Return a function that matches whole names; raise ValueError for an invalid pattern.

    RE2 takes time linear in the length of the name. The writer of the topic chooses the names, and
    with Python's `re` a name of 31 letters can block a process for hours.
    """
    try:
        fullmatch = re2.compile(pattern, _OPTIONS).fullmatch
    except re2.error as error:
        reason = error.args[0].decode("utf-8", "replace")
        hint = "use RE2 syntax, without look-around and back-references"
        raise ValueError(f"is not a regular expression: {reason}; {hint}") from None
    except UnicodeEncodeError as error:
        raise ValueError(f"is not a regular expression: {error.reason}") from None

    def matches(name: str) -> bool:
        # JSON can escape a lone surrogate, which UTF-8 cannot encode.
        return fullmatch(name.encode("utf-8", "replace")) is not None

    return matches


# Parts of an error's path that pydantic adds for a value that is either a word or a mapping.
WORD_TAG, KEYS_TAG = "<word>", "<keys>"


class MisplacedError(ValueError):
    """A problem of a key below the key whose validator found it."""

    def __init__(self, reason: str, *below: str) -> None:
        super().__init__(reason)
        self.below = below


class ElsewhereError(ValueError):
    """A problem of a key whose validator had to wait for a later key; `keys` is its whole path."""

    def __init__(self, reason: str, *keys: str) -> None:
        super().__init__(reason)
        self.keys = keys


class Section(BaseModel):
    """A mapping of the spec.

    It is strict: `true` is no number, and `5` is no name. Only our own messages quote input."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, hide_input_in_errors=True)


def _split(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Columns that retally adds to the source's columns in Spark's rows.
OWN_COLUMNS = _split("""
    __bucket __change_partition __change_time __content __doubt __kafka __key __kind __late
    __message __place __position __reason __failed __row_bucket __sign __time __weight
""")


def _duration(value: object) -> int:
    milliseconds = parse_duration(value)
    if milliseconds == 0:
        raise ValueError("must be greater than 0; write it like 5s or 5ms")
    return milliseconds


def text_like(noun: str, pattern: str, hint: str) -> AfterValidator:
    """Return a validator of texts that match a pattern; its error names the noun and the hint."""
    compiled = re.compile(pattern, re.ASCII)

    def check(text: str) -> str:
        if compiled.fullmatch(text) is None:
            raise ValueError(f"{text[:80]!r} is not {noun}; {hint}")
        return text

    return AfterValidator(check)


def _column_name(text: str) -> str:
    if text.lower() in OWN_COLUMNS:  # Spark ignores the case of names
        raise ValueError(
            f"{text!r} is a column that retally itself adds to the rows; rename it in the source, "
            "or omit it"
        )
    return text


def _topic(text: str) -> str:
    if text in (".", ".."):
        raise ValueError(f"{text!r} is not a topic name; Kafka reserves it, so use another")
    return text


def _files_path(text: str) -> str:
    path = text.rstrip("/")
    if path.startswith(SCHEME):
        return str(ObjectPath.of(path))
    if not path.startswith("/") or os.path.normpath(path) != path or not path.isprintable():
        raise ValueError("must be an absolute directory without . and .., or s3://BUCKET/PREFIX")
    if len(path) > limits.FILES_PATH_CHARACTERS_MAX:
        raise ValueError(f"must be at most {limits.FILES_PATH_CHARACTERS_MAX} characters")
    return path


def _regex(text: str) -> str:
    if len(text) > limits.PATTERN_CHARACTERS_MAX:
        raise ValueError(f"must be at most {limits.PATTERN_CHARACTERS_MAX} characters")
    name_matcher(text)
    return text


def _sql(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be empty; write the SQL here")
    if len(text) > limits.QUERY_CHARACTERS_MAX:
        raise ValueError(f"has {len(text)} characters; use at most {limits.QUERY_CHARACTERS_MAX}")
    return text


def _column_type(value: object) -> SqlType:
    if isinstance(value, SqlType):
        return value
    if not isinstance(value, str):
        raise ValueError("must be a type such as INT or DECIMAL(10, 2)")
    if "(" in value and ")" not in value:
        raise ValueError(
            f"{value[:40]!r} is half a type, because inside {{ }} a comma ends a value; "
            'put the type in quotes, as in "DECIMAL(10, 2)"'
        )
    if len(value) > limits.IDENTIFIER_CHARACTERS_MAX:
        raise ValueError(f"{value[:40]!r}... is not a type such as INT or DECIMAL(10, 2)")
    return SqlType.parse(value)


def _instant(value: object) -> int:
    """Return epoch milliseconds from such a number or from ISO 8601 text (without a zone: UTC)."""
    if isinstance(value, int) and not isinstance(value, bool):
        if not 0 <= value <= limits.COUNT_MAX:
            raise ValueError("must be epoch milliseconds, 0 or more")
        return value
    if not isinstance(value, str):
        raise ValueError("must be a time; write it like 2026-01-31T12:00:00Z")
    try:
        milliseconds = parse_instant(value) // 1_000
    except ValueError:
        raise ValueError(
            f"{value[:40]!r} is not a time; write it like 2026-01-31T12:00:00Z"
        ) from None
    if milliseconds < 0:
        raise ValueError("must not be before 1970")
    return milliseconds


def instant_text(milliseconds: int) -> str | int:
    """Return ISO 8601 text, or a number for the years beyond 9999."""
    try:
        return format_instant(milliseconds)
    except OverflowError:
        return milliseconds


def _partition(value: object) -> int:
    """Return a partition that is a key of a mapping, which is text in JSON."""
    if isinstance(value, str) and re.fullmatch(r"0|[1-9][0-9]{0,8}", value):
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise ValueError('must be a partition, a whole number such as "0"')


def word_or_keys(value: object) -> str:
    """Return the tag of a value that may be a word or a mapping."""
    return KEYS_TAG if isinstance(value, (Mapping, BaseModel)) else WORD_TAG


_DURATION_SCHEMA = WithJsonSchema({"type": "string", "examples": ["5s", "200ms"]})
_AS_DURATION = PlainSerializer(duration_text, return_type=str)
_NAME_HINT = "use letters, digits, - and _, and begin with a letter or digit"
_TOPIC_NAME = (
    rf"[A-Za-z0-9._-]{{1,{limits.TOPIC_CHARACTERS_MAX}}}",
    f"use 1 to {limits.TOPIC_CHARACTERS_MAX} of letters, digits, '.', '_' and '-'",
)

Duration = Annotated[int, BeforeValidator(_duration), _AS_DURATION, _DURATION_SCHEMA]
DurationOrZero = Annotated[int, BeforeValidator(parse_duration), _AS_DURATION, _DURATION_SCHEMA]
# 0 is `never`, which says that the operator's default does not apply either.
IdleAfter = Annotated[
    int,
    BeforeValidator(lambda value: 0 if value == "never" else _duration(value)),
    PlainSerializer(lambda ms: duration_text(ms) if ms else "never", return_type=str),
    _DURATION_SCHEMA,
]
# 0 is `off`, which YAML reads as false: no mirror, not even the default one.
MirrorEvery = Annotated[
    int,
    BeforeValidator(lambda value: 0 if value is False or value == "off" else _duration(value)),
    PlainSerializer(lambda ms: duration_text(ms) if ms else "off", return_type=str),
    _DURATION_SCHEMA,
]
Count = Annotated[int, BeforeValidator(parse_count)]
_JOB_NAME = (
    rf"[a-z][a-z0-9_-]{{0,{limits.JOB_NAME_CHARACTERS_MAX - 1}}}",
    f"use 1 to {limits.JOB_NAME_CHARACTERS_MAX} of a-z, 0-9, _ and -, and begin with a letter",
)
JobName = Annotated[str, text_like("a job name", *_JOB_NAME)]
ViewName = Annotated[str, text_like("a view name", *_JOB_NAME)]
Label = Annotated[str, text_like("a label", *_JOB_NAME)]
Topic = Annotated[str, text_like("a topic name", *_TOPIC_NAME), AfterValidator(_topic)]
# A sink has two topics; the longer name has to be valid as well.
_SINK_TOPIC_MAX = limits.TOPIC_CHARACTERS_MAX - len(PROGRESS_SUFFIX)
SinkTopic = Annotated[
    Topic,
    text_like(
        "a sink topic name",
        rf".{{1,{_SINK_TOPIC_MAX}}}",
        f"use at most {_SINK_TOPIC_MAX} characters, so that {PROGRESS_SUFFIX} can follow",
    ),
]
GroupId = Annotated[str, text_like("a group id", *_TOPIC_NAME)]
ConnectionName = Annotated[
    str, text_like("a connection name", r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}", _NAME_HINT)
]
IDENTIFIER = (
    rf"[A-Za-z_][A-Za-z0-9_]{{0,{limits.IDENTIFIER_CHARACTERS_MAX - 1}}}",
    f"use at most {limits.IDENTIFIER_CHARACTERS_MAX} letters, digits and _, no digit first",
)
ColumnName = Annotated[str, text_like("a column name", *IDENTIFIER), AfterValidator(_column_name)]
ColumnType = Annotated[
    SqlType,
    PlainValidator(_column_type),
    PlainSerializer(str, return_type=str),
    WithJsonSchema({"type": "string", "examples": ["INT", "DECIMAL(10, 2)"]}),
]
FilesPath = Annotated[str, AfterValidator(_files_path)]
Regex = Annotated[str, AfterValidator(_regex)]
Sql = Annotated[str, AfterValidator(_sql)]
Instant = Annotated[
    int,
    BeforeValidator(_instant),
    PlainSerializer(instant_text),
    WithJsonSchema({"type": ["string", "integer"], "examples": ["2026-01-31T12:00:00Z"]}),
]
Partition = Annotated[int, BeforeValidator(_partition)]
Offset = Annotated[int, Field(ge=0, le=2**63 - 1)]
