"""Suggest a spec for a topic, from its newest messages.

    messages ──► format (by its envelope) ──► rows ──► types of the columns ──► a query ──► YAML
                                                                 its columns and the key ◄──┘

A few messages do not show everything, so the user has to check the suggestion. The editor checks it
like any other spec.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from jobs.core.formats.registered import SchemaError
from jobs.core.sql.printer import identifier_sql
from jobs.core.sql.scope import RESERVED
from jobs.core.suggestion.column_types import ColumnGuess, Use, guess_column
from jobs.core.suggestion.envelopes import Sampled, read_object, recognize
from jobs.core.suggestion.registered import Finders, read_sample
from schemas import limits
from schemas.spec.job import SCHEMA_LINE
from schemas.spec.source import METADATA_TYPES
from schemas.spec.values import OWN_COLUMNS

Message = tuple[bytes | None, bytes | None]  # key and value of a record

# What YAML does not read as text, and what is no text of one word.
_YAML_WORDS = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}
# SUM returns the type of its argument, so a sum of many INTs is NULL where MySQL has a number. So
# a narrow column is declared wider, and SUM casts a column that has no wider type as fast.
_WIDER_COLUMNS = dict.fromkeys(("TINYINT", "SMALLINT", "INT"), "BIGINT")
_WIDER_ARGUMENTS = {"BIGINT": "DECIMAL(20, 0)", "FLOAT": "DOUBLE"}
# The columns of the table that hold state begin so (jobs.core.fold.program.state_names).
_STATE_PREFIXES = ("acc_", "image_", "value_")
_SUMS, _LINE = 2, 90  # a query sums so many columns; characters of a line
_REPEATS = (
    "The messages name no primary key, so a message that the source repeats counts twice.",
    "If the rows have a key, add primary_key and dedupe: pk.",
)


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A spec as YAML, or the reason why there is none."""

    text: str | None
    reason: str | None = None
    columns: tuple[str, ...] = ()  # of the rows
    group: str | None = None  # the column of GROUP BY


def suggest_spec(
    topic: str,
    connection: str,
    messages: Iterable[Message],
    by: str | None = None,
    finders: Finders = MappingProxyType({}),  # of schemas
) -> Suggestion:
    """Return a spec that reads a topic, from its newest messages, newest first.

    It groups by the column `by`, or else by the one that suits best.
    """
    messages = list(messages)
    read = [(read_object(key), read_object(value)) for key, value in messages]
    objects = [(key, value) for key, value in read if value is not None]
    if not read:
        return Suggestion(None, f"topic {topic!r} is empty; a suggestion needs messages")
    recognized = [recognize(value, key) for key, value in objects]
    envelopes = [each for each in recognized if each is not None]
    if not objects:
        try:
            found = (read_sample(key, value, finders) for key, value in messages)
            envelopes = [each for each in found if each is not None]
        except SchemaError as error:
            return Suggestion(None, f"the newest messages cannot be read: {error}")
    samples = [each for each in envelopes if each.rows]
    if envelopes and not samples:
        kinds = ", ".join(sorted({each.kind[:20] for each in envelopes}))
        reason = (
            f"the newest messages are {envelopes[0].format} without rows ({kinds}): there are no "
            "rows yet; change a row of the table, and ask again"
        )
        return Suggestion(None, reason)
    if not envelopes:  # so they are plain events
        samples = [Sampled("json", [value]) for _, value in objects if value]
    if not samples:
        return Suggestion(None, "the newest messages have an unknown format; write the columns")
    newest = samples[0]
    same = [each for each in samples if _source_of(each) == _source_of(newest)]
    guesses = _guess_columns(same)
    if not guesses:
        return Suggestion(None, "no member of the rows can be the name of a column")
    if by is not None and by not in guesses:
        return Suggestion(None, f"there is no column {by!r}; known: {', '.join(guesses)}")
    others = sorted({each.table or "" for each in samples} - {newest.table or ""})
    key = _find_key(newest, guesses)
    group = by or _choose_group(guesses, key)
    text = _write_spec(topic, connection, newest, guesses, others, key, group)
    return Suggestion(text, None, tuple(guesses), group)


def _find_key(newest: Sampled, guesses: Mapping[str, ColumnGuess]) -> list[str]:
    key = list(newest.key)
    return key if 0 < len(key) <= limits.KEY_COLUMNS_MAX and guesses.keys() >= set(key) else []


def _choose_group(guesses: Mapping[str, ColumnGuess], key: Sequence[str]) -> str | None:
    free = [each for each in guesses if each not in key and guesses[each].use < Use.MEASURE]
    return min(free, key=lambda name: guesses[name].use, default=None)


def _source_of(sampled: Sampled) -> tuple[str, str | None, str | None]:
    return sampled.format, sampled.database, sampled.table


def _guess_columns(samples: Sequence[Sampled]) -> dict[str, ColumnGuess]:
    """Return the columns of the newest row, in its order; the newest description of each holds."""
    rows = [row for each in samples for row in each.rows]
    described = {name: kind for each in reversed(samples) for name, kind in each.described.items()}
    guesses: dict[str, ColumnGuess] = {}
    taken = OWN_COLUMNS | METADATA_TYPES.keys()
    for name in rows[0]:
        if _is_identifier(name) and name.lower() not in taken:
            taken |= {name.lower()}  # Spark ignores the case of names
            guesses[name] = guess_column(described.get(name), [row.get(name) for row in rows])
    return guesses


# --- the query ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Query:
    lines: Sequence[str]
    columns: Mapping[str, str]  # the types of the columns that it reads


def _write_query(
    table: str, guesses: Mapping[str, ColumnGuess], key: Sequence[str], group: str | None
) -> _Query:
    """Return SELECT group, SUM(..), SUM(..), MAX(..), COUNT(*) over columns that suit."""
    free = [name for name in guesses if name not in (*key, group)]
    measures = [each for each in free if guesses[each].use is Use.MEASURE and not _is_id(each)]
    columns = {} if group is None else {group: guesses[group].type}
    names = _Names()
    selected = [] if group is None else [names.column(group)]
    for name in measures[:_SUMS]:
        kind = guesses[name].type
        columns[name] = _WIDER_COLUMNS.get(kind, kind)
        argument, wider = identifier_sql(name), _WIDER_ARGUMENTS.get(kind)
        argument = argument if wider is None else f"CAST({argument} AS {wider})"
        selected.append(f"SUM({argument}) AS {names.result(f'sum_{name}')}")
    for name in measures[:1]:
        selected.append(f"MAX({identifier_sql(name)}) AS {names.result(f'max_{name}')}")
    selected.append(f"COUNT(*) AS {names.result('n')}")
    lines = [*_wrap("SELECT ", selected), f"FROM {identifier_sql(table)}"]
    lines += [] if group is None else [f"GROUP BY {identifier_sql(group)}"]
    return _Query(lines, columns)


def _is_id(name: str) -> bool:
    return name.lower() == "id" or name.lower().endswith("_id")


class _Names:
    """The names of the result's columns, each once."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def column(self, name: str) -> str:
        """Return a column of SELECT, renamed if it looks like one of the job's own table."""
        low = name.lower()
        reserved = low in RESERVED or low.startswith(_STATE_PREFIXES)
        shown = self.result(f"group_{name}" if reserved else name)
        quoted = identifier_sql(name)
        return quoted if shown == quoted else f"{quoted} AS {shown}"

    def result(self, name: str) -> str:
        free, number = name[: limits.IDENTIFIER_CHARACTERS_MAX], 1
        while free.lower() in self._taken:
            number += 1
            free = f"{name[: limits.IDENTIFIER_CHARACTERS_MAX - 2]}_{number}"
        self._taken.add(free.lower())
        return identifier_sql(free)


# --- the text -------------------------------------------------------------------------------------


def _write_spec(
    topic: str,
    connection: str,
    newest: Sampled,
    guesses: Mapping[str, ColumnGuess],
    other_tables: Sequence[str],
    key: Sequence[str],
    group: str | None,
) -> str:
    table = newest.table if newest.table and _is_identifier(newest.table) else "source"
    query = _write_query(table, guesses, key, group)
    columns = {name: guesses[name].type for name in key} | dict(query.columns)
    if not columns:  # COUNT(*) alone; a spec declares at least one column
        columns = {name: guess.type for name, guess in list(guesses.items())[:1]}
    others = [f"{name} {each.type}" for name, each in guesses.items() if name not in columns]
    lines = _write_notes(topic, newest, others, other_tables, has_key=bool(key))
    lines += [f"name: {_make_job_name(topic)}", "source:", f"  topic: {_quote(topic)}"]
    lines += [] if connection == "default" else [f"  connection: {_quote(connection)}"]
    lines.append(f"  format: {newest.format}")
    lines += [f"  schema_registry: {_quote(newest.registry)}"] if newest.registry else []
    for section, name in (("database", newest.database), ("table", newest.table)):
        if name is not None and len(name) <= limits.TABLE_CHARACTERS_MAX:
            lines.append(f"  {section}: {_quote(_match_name(name))}")
    lines.append("columns:")
    lines += [f"  {_quote(name)}: {kind}" for name, kind in columns.items()]
    if key:
        lines += [f"primary_key: [{', '.join(map(_quote, key))}]", "dedupe: pk"]
    lines += ["query: |", *(f"  {line}" for line in query.lines)]
    return "\n".join(lines) + "\n"


def _write_notes(
    topic: str,
    newest: Sampled,
    others: Sequence[str],
    other_tables: Sequence[str],
    *,
    has_key: bool,
) -> list[str]:
    """Return the comments before a spec. They have no text of a message but names of columns."""
    notes = [f"Suggested from the newest messages of {json.dumps(topic)}: check types and query."]
    if other_tables:
        count = len(other_tables)
        notes.append(f"The topic has rows of {count} other table{'' if count == 1 else 's'}, too.")
    if newest.format == "canal-json" and not has_key:
        notes += _REPEATS
    notes += _wrap("Other columns: ", others) if others else []
    return [SCHEMA_LINE, *(f"# {note}" for note in notes)]


def _wrap(head: str, items: Sequence[str]) -> list[str]:
    """Return items separated by commas, in lines of a readable length."""
    lines, line = [], head + items[0]
    for each in items[1:]:
        if len(line) + len(each) > _LINE:
            lines.append(f"{line},")
            line = " " * len(head) + each
        else:
            line += f", {each}"
    return [*lines, line]


def _match_name(name: str) -> str:
    """Return a pattern that matches this name only."""
    escaped = (
        each if each.isalnum() or each == "_" or not each.isascii() else f"\\{each}"
        for each in name
    )
    return f"^{''.join(escaped)}$"


def _quote(value: str) -> str:
    """Return a YAML scalar, quoted unless YAML reads it as the same text."""
    word = value.strip("^$").replace(".", "_").replace("-", "_")
    plain = word.isascii() and word.isidentifier() and not word.startswith("_")
    return value if plain and value.lower() not in _YAML_WORDS else json.dumps(value)


def _make_job_name(topic: str) -> str:
    kept = (each if each.isascii() and (each.isalnum() or each == "_") else "-" for each in topic)
    words = "-".join(filter(None, "".join(kept).lower().split("-"))).strip("_")
    words = words if words[:1].isalpha() else f"job-{words}".strip("-")
    return words[: limits.JOB_NAME_CHARACTERS_MAX].rstrip("_-")


def _is_identifier(name: str) -> bool:
    return name.isascii() and name.isidentifier() and len(name) <= limits.IDENTIFIER_CHARACTERS_MAX
