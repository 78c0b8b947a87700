"""What a written spec has that says nothing new: an earlier version reads it after a way back."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.spec.file import load_spec

QUERY = "SELECT k, SUM(v) AS s FROM t GROUP BY k"
SPEC: dict[str, Any] = {"name": "items", "source": {"topic": "t"}, "columns": {"k": "INT"}}
SINK = {"topic": "o"}
# The keys of 26 November 2026, of which this version writes the defaults.
OF_QUERY = {
    "query": None,
    "emit": None,
    "state": {"ttl", "buckets", "refresh", "emit_expired"},
    "sink": {"topic", "connection", "format", "partitions", "delivery"},
}
KNOWN = OF_QUERY | {
    "name": None,
    "source": {"topic", "connection", "format", "start"},
    "columns": {"k"},
    "timestamp_format": None,
    "minibatch": {"clock", "size", "latency", "max_rows"},
    "watermark": {"time", "generator", "delay", "exact", "within_epoch", "future_skew"},
    "retention": None,
    "on_error": None,
    "max_bad_fraction": None,
    "on_schema_change": None,
    "on_truncate": None,
    "early_retractions": None,
    "durable": None,
    "version": None,
}


def keys_of(document: dict[str, Any]) -> dict[str, set[str] | None]:
    return {key: set(of) if isinstance(of, dict) else None for key, of in document.items()}


def test_the_defaults_of_later_keys_are_not_written() -> None:
    """A key that is new here, with a default, belongs into _LATER_DEFAULTS."""
    assert keys_of(load_spec(SPEC | {"query": QUERY, "sink": SINK}).document()) == KNOWN
    document = load_spec(SPEC | {"views": {"a": {"query": QUERY, "sink": SINK}}}).document()
    assert keys_of(document["views"]["a"]) == OF_QUERY


@pytest.mark.parametrize("later", [{"empty": "row"}, {"sink": SINK | {"publishers": 2}}], ids=str)
def test_what_a_later_key_asks_for_is_written(later: dict[str, Any]) -> None:
    spec = load_spec(SPEC | {"query": QUERY, "sink": SINK} | later)
    assert load_spec(spec.document()) == spec
    assert keys_of(spec.document()) != KNOWN
