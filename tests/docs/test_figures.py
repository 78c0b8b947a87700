"""Figures of the pages are those of docs/performance.md, bounds those of the code; keys exist."""

from __future__ import annotations

import re

import yaml

from schemas import limits
from schemas.spec.file import load_spec
from tests.docs.documents import rows_of, text
from tests.support.documents import blocks


def test_measured_figures_are_those_of_the_page_that_says_how() -> None:
    section = text("comparison.md").partition("\n- **Flink** ")[2].partition("\n- **")[0]
    figures = re.findall(r"\d+\.\d+", section)
    assert len(figures) == 4
    measured = text("performance.md")
    assert [figure for figure in figures if figure not in measured] == []


def test_figures_that_scale_calls_measured_are_there_too() -> None:
    said = "".join(re.findall(r"measured: ([^;|]*)", text("scale.md")))
    figures = re.findall(r"\d+,\d{3}|\d+\.\d+", said)
    assert len(figures) >= 3
    assert [figure for figure in figures if figure not in text("performance.md")] == []


def test_bounds_are_those_of_the_code() -> None:
    rows = re.findall(r"^\| `([A-Z_]+)` \| ([\d,]+)( MiB)? \|", text("scale.md"), re.MULTILINE)
    assert len(rows) == len(rows_of("scale.md", "## Limits"))
    for name, number, unit in rows:
        bound = int(number.replace(",", "")) * (1024 * 1024 if unit else 1)
        assert bound == getattr(limits, name), name


def test_keys_that_replace_an_option_are_keys_of_a_spec() -> None:
    """Of each table, what stands in the second column as `section.key`."""
    known = set(_paths(load_spec(_full()).document()))
    for name in ("csv", "json"):
        source: dict[str, object] = {"topic": "t", "format": name, name: {}}
        events = load_spec({**yaml.safe_load(_full()), "source": source})
        known |= set(_paths(events.document()))
    ours = "\n".join(re.findall(r"^\| .* \| (.*) \|$", text("flink.md"), re.MULTILINE))
    named = re.findall(r"`((?:source|minibatch|watermark|state|sink)\.\w+)", ours)
    assert len(set(named)) > 8
    assert set(named) <= known


def _full() -> str:
    """A spec that says all of it, so that every key shows."""
    (block,) = (b for b in blocks("yaml") if b.document == "job-spec.md" and "durable" in b.text)
    document = yaml.safe_load(block.text)
    document["source"] |= {"database": "shop", "table": "product", "group": "others"}
    document["watermark"] = {
        "where": "cnt > 0",
        "emit_every": "1s",
        "idle_after": "30s",
        "align": {"group": "g", "max_drift": "1m"},
    }
    document["state"] |= {"ttl": "1d"}
    return yaml.safe_dump(document)


def _paths(document: dict[str, object], above: str = "") -> list[str]:
    found = []
    for key, value in document.items():
        found.append(f"{above}{key}")
        if isinstance(value, dict):
            found += _paths(value, f"{above}{key}.")
    return found
