"""Let PostgreSQL's clients find jobs and columns: pg_catalog over DuckDB's own catalog.

    statement ──► pg_catalog. goes, information_schema becomes info ──► DuckDB
        └──► names that it uses ──► their definitions in catalog.sql ──► schemas pg and info

Only what a statement names is defined, because each definition takes a part of a millisecond.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from jobs.querying.postgres.types import TEXT_ARRAY_OID, find_type_oid, name_parameter_type

# A view of `info` and a type are needed only where such a name stands.
_WORD = re.compile(r"(info\s*\.\s*|::\s*|\bas\s+)?\"?([a-z_][a-z0-9_]*)", re.IGNORECASE)
_DEFINED = re.compile(r"CREATE (VIEW|MACRO|TYPE) ((?:info\.)?\w+)")
_LISTS = re.compile(r"\s*(?:SHOW|DESC|DESCRIBE|SUMMARIZE)\b", re.IGNORECASE)  # all that there is
_TABLES = "retally_tables"  # what has the names of jobs
# What is inside quotes, dollars and comments stays; an end that is missing is the statement's end.
_REWRITTEN = re.compile(
    r"""(?P<text>'(?:[^']|'')*'?)(?P<oid>\s*::\s*(?:pg_catalog\.)?regclass\b)?"""
    r"""|(?P<comment>--[^\n]*)"""
    r"""|(?P<array>\bANY\s*\(\s*\$(?P<item>[0-9]{1,5})\s*\))"""
    r"""|\$(?P<parameter>[0-9]{1,5})\b(?P<cast>\s*::\s*(?P<type>[a-z0-9]+(?:\[\])?))?"""
    r"""|OPERATOR\s*\(\s*pg_catalog\s*\.\s*(?P<operator>[^\s)]{1,4})\s*\)"""
    r"""|(?P<collate>\bCOLLATE\s+(?:pg_catalog\.)?(?:"?default"?|"C"))"""
    r"""|\bjsonb?_build_(?P<json>object|array)\b"""
    r"""|(?P<schema>\bpg_catalog\s*\.|"pg_catalog"\s*\.)"""
    r"""|(?P<database>(?:\bretally|"retally")\s*\.\s*(?=public\b|"public"|information_schema\b))"""
    r"""|(?P<info>\binformation_schema\b|"information_schema")"""
    r"""|(?P<name>"(?:[^"]|"")*"?)""",
    re.IGNORECASE,
)


class Translated(NamedTuple):
    """A statement as DuckDB reads it, with all places where they were except after a regclass."""

    sql: str
    parameters: int  # the highest number of one
    types: dict[int, int]  # by number, of those whose place says it: ANY($1), $1::int
    definitions: list[str]  # to execute before it
    lists_tables: bool


def translate(sql: str, user: str, types: tuple[int, ...] = ()) -> Translated:
    """Return a statement of a client; its parameters are of these types, if they are given."""
    highest = 0
    said: dict[int, int] = {}

    def rewrite(found: re.Match[str]) -> str:
        nonlocal highest
        whole = found[0]
        match found.lastgroup:
            case "oid":
                return f"retally_oid({found['text']})"
            case "array":
                said.setdefault(int(found["item"]), TEXT_ARRAY_OID)
                highest = max(highest, int(found["item"]))
            case "parameter" | "cast":
                number = int(found["parameter"])
                highest = max(highest, number)
                if found["type"] and (oid := find_type_oid(found["type"].lower())):
                    said[number] = oid
                known = name_parameter_type(types[number - 1]) if 0 < number <= len(types) else None
                return whole if known is None else f"({whole}::{known})"
            case "operator":
                return found["operator"].ljust(len(whole))
            case "json":
                return f"json_{found['json']}".ljust(len(whole))
            case "info":
                return "info".ljust(len(whole))
            case "schema" | "database" | "collate":
                return " " * len(whole)
        return whole

    translated = _REWRITTEN.sub(rewrite, sql)
    words = set() if _LISTS.match(translated) else _find_words(translated)
    needed = list(dict.fromkeys(_find_needed(words)))
    quoted = user.replace("'", "''")
    definitions = [_read_pieces()[name].replace("{user}", quoted) for name in needed]
    return Translated(translated, highest, said, definitions, _TABLES in needed)


def _find_needed(words: set[str]) -> Iterator[str]:
    """Yield the names that these words need, each after those that it needs itself."""
    pieces = _read_pieces()
    for name in pieces.keys() & words:
        yield from _find_needed(_find_words(pieces[name]) - {name})
        yield name


def _find_words(sql: str) -> set[str]:
    found: set[str] = set()
    for before, word in _WORD.findall(sql.lower()):
        found.add(f"info.{word}" if before.startswith("info") else word)
        if before.startswith((":", "as")):
            found.add(f":{word}")
    return found


@cache
def _read_pieces() -> dict[str, str]:
    text = Path(__file__).with_name("catalog.sql").read_text(encoding="utf-8")
    text = re.sub(r"^--.*\n", "", text, flags=re.MULTILINE)
    pieces: dict[str, str] = {}
    for piece in text.split(";\n"):
        if (named := _DEFINED.match(piece.strip())) is not None:
            kind, name = named.groups()
            pieces[f":{name}" if kind == "TYPE" else name] = piece.strip()
    return pieces
