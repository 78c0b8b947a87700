"""Figures of the pages are those that `make figures` writes; bounds those of the code; keys exist.

tests/bench/test_figures.py compares what it writes.
"""

from __future__ import annotations

import re

import yaml

from bench.report import COPIES, ROWS, read_kept
from schemas import limits
from schemas.spec.file import load_spec
from tests.docs.documents import rows_of, text
from tests.support.documents import DOCUMENTS, FENCE, blocks, name_of

_FIGURE = re.compile(
    r"(?<![\w.,:/-])(?:"
    r"\d[\d,]*\.\d+(?: to [\d.,]+)? (?:µs|ms|s|MiB|times)\b"
    r"|\d+(?: to \d+)? µs|\d+ to \d+ ms"
    r"|\d[\d,]*(?:[1-9]\d|\d[1-9]) (?:changes|records|messages|rows)(?: a second|/s))"
)
# A section with one of these says how its figures came about, or they are of prototypes.
_EVIDENCE = re.compile(
    r"\(\S*(?:lab/\w+|rejected)\.md|(?:make |-m )(?:bench|faults|compose-test|cdc-test)\b"
)
_ELSEWHERE = {"performance.md", "design/rejected.md", "CHANGELOG.md"}


def test_a_figure_is_written_by_make_figures_or_its_section_says_how_it_was_measured() -> None:
    found = []
    for path in DOCUMENTS:
        if name_of(path) in _ELSEWHERE or name_of(path).startswith("lab/"):
            continue
        page = path.read_text(encoding="utf-8")
        copies = [copy.repeated for copy in COPIES if copy.page == path]
        written = {re.search(each, page).start(1) for each in copies}  # type: ignore[union-attr]
        spaced = FENCE.sub(lambda match: " " * len(match[0]), page)
        for section in re.finditer(r"^#*[^\n]*(?:\n(?!#)[^\n]*)*", spaced, re.MULTILINE):
            alone = [
                figure[0]
                for figure in _FIGURE.finditer(section[0])
                if section.start() + figure.start() not in written
            ]
            if alone and not _EVIDENCE.search(section[0]):
                found.append((name_of(path), section[0].partition("\n")[0], alone))
    assert found == []


def test_every_result_of_a_kept_run_is_written_by_make_figures() -> None:
    table = text("performance.md").partition("| what | goal |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (.+?) \| .*`(\w+)` \|$", table, re.MULTILINE)
    kept = {label for label, workload in rows if workload in read_kept()}
    assert len(kept) >= 9
    assert kept == set(ROWS)


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
