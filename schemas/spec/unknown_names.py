"""Name what a user probably meant by an unknown key or word of a spec."""

from __future__ import annotations

import difflib
import re

from schemas import limits

Keys = tuple[str, ...]
_KEY_SHOWN = 60  # characters of a user's key that a message quotes
# Keys that users expect in a spec, and what they are in retally.
_ELSEWHERE = dict.fromkeys(
    ("broker", "brokers", "bootstrap", "bootstrap_servers", "bootstrap.servers"),
    "addresses come from --brokers or --connections; a spec names a `connection` of these",
) | {"iceberg": "it has no runtime for this version of Spark; write the rows as parquet"}


def describe_unknown_key(key: str, known: Keys) -> str:
    reason = f"unknown key {quote_key(key, quote=chr(39))}"
    if key in _ELSEWHERE and "bootstrap" not in known:
        return f"{reason}; {_ELSEWHERE[key]}"
    if near := find_nearest(key, known):
        return f"{reason}; did you mean {near!r}?"
    return f"{reason}; known here: {', '.join(known)}" if known else f"{reason}; remove it"


def find_nearest(key: str, known: Keys) -> str | None:
    if len(key) > limits.IDENTIFIER_CHARACTERS_MAX:
        return None
    return next(iter(difflib.get_close_matches(key.lower(), known, n=1, cutoff=0.5)), None)


def describe_unknown_word(given: object, expected: str, keys: Keys) -> str:
    words = re.findall(r"'([^']*)'", expected)
    choices = ", ".join(words) + (f", or a mapping with {' or '.join(keys)}" if keys else "")
    if not isinstance(given, str):
        return f"must be one of {choices}"
    lower = {word.lower(): word for word in words}
    near = difflib.get_close_matches(given.lower()[:40], lower, n=1)
    hint = f"; did you mean {lower[near[0]]!r}?" if near else ""
    return f"must be one of {choices}, not {given[:40]!r}{hint}"


def quote_key(key: str, quote: str = '"') -> str:
    shown = key if len(key) <= _KEY_SHOWN else key[:_KEY_SHOWN] + "..."
    return quote + escape_unprintable(shown) + quote


def escape_unprintable(text: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
