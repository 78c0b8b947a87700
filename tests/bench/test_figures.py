"""The figures of the pages are those of kept results; `make figures` writes them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from bench import report
from bench.frame import Figure

LABEL = "join of orders and customers, rate"


@pytest.mark.parametrize("page", report.PAGES, ids=lambda page: page.name)
def test_the_pages_have_what_was_kept(page: Path) -> None:
    shown = page.read_text(encoding="utf-8")
    assert report.PAGES[page](shown) == shown, "run make figures"


def test_another_result_changes_the_pages_that_repeat_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = report.CHECKOUT / "docs" / "comparison.md"
    shown, render = page.read_text(encoding="utf-8"), report.PAGES[page]
    results = report.RESULTS.read_text(encoding="utf-8")
    (rate,) = re.findall(r"\| backfill, rate \|[^|]*\| (\S+);", results)
    monkeypatch.setattr(report, "RESULTS", tmp_path / "performance.md")
    report.RESULTS.write_text(results.replace(rate, "9.87"))
    assert f"have {rate} times its rate" in shown
    assert render(shown) == shown.replace(f"have {rate} times", "have 9.87 times")


def test_another_result_changes_its_row_its_verdict_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = report.read_kept()
    page = report.RESULTS.read_text(encoding="utf-8")
    monkeypatch.setattr(report, "KEPT", tmp_path / "kept.json")
    report.KEPT.write_text(json.dumps(kept))
    found = [Figure(**each) for each in kept["joins"]["figures"]]
    slower = {"rate, of that of Flink hashmap": 1.5, "rate, of that of Flink rocksdb": 1.75}
    changed = [
        {**each, "value": slower[figure.what], "holds": False} if figure.what in slower else each
        for each, figure in zip(kept["joins"]["figures"], found, strict=True)
    ]
    report.keep({**kept["joins"], "figures": changed})
    assert report.read_kept()["queries"] == kept["queries"]
    before, after = page.splitlines(), report.render_results(page).splitlines()
    differing = [new for old, new in zip(before, after, strict=True) if old != new]
    assert [line.split(" | ")[2:4] for line in differing] == [
        ["1.50; 1.75 ([why](lab/performance.md#joins))", "missed"]
    ]
    assert differing[0].startswith(f"| {LABEL} |")
