"""What each file of tests costs, kept in tests/costs.json.

    make test ARGS=--measure ─► seconds of each file ─► the newest of them, in tests/costs.json
                                                          ├─► workers begin with the longest files
                                                          ├─► tests/test_costs.py: a file's share
                                                          └─► the tables of docs/lab/tests.md

A file has two parts: what `make test` runs of it, and what `make test-rest` does.
`python -m tests.support.runner.costs` writes the tables anew.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Collection, Generator, Mapping
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import psutil
import pytest

CHECKOUT = Path(__file__).resolve().parents[3]
FILE = CHECKOUT / "tests" / "costs.json"
PAGE = CHECKOUT / "docs" / "lab" / "tests.md"
PARTS = {"test": "make test", "rest": "make test-rest"}
KEPT = 5  # measurements of a file
BEGIN, END = "<!-- costs -->\n", "<!-- /costs -->\n"
_FILES_SHOWN = 15
_ARGUMENTS = pytest.Config.ArgsSource.ARGS  # files were named


class Cost(NamedTuple):
    """Seconds; of the processor those of all processes that the tests started."""

    wall: float
    processor: float


Measured = dict[str, dict[str, list[Cost]]]  # part, file ─► oldest first


def read_costs() -> Measured:
    """Return what is kept."""
    found = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    return {
        part: {file: [Cost(*each) for each in kept] for file, kept in found.get(part, {}).items()}
        for part in PARTS
    }


def keep_costs(
    measured: Mapping[str, Mapping[str, Cost]], whole: Mapping[str, Collection[str]]
) -> None:
    """Add one measurement of each of these files; forget files that are gone.

    Of a part that ran `whole`, with these files, other files have no tests any more."""
    costs = read_costs()
    for part, known in whole.items():
        costs[part] = {file: kept for file, kept in costs[part].items() if file in known}
    for part, files in measured.items():
        for file, cost in files.items():
            costs[part][file] = [*costs[part].get(file, []), cost][-KEPT:]
    parts = []
    for part, kept in costs.items():
        lines = [
            f"{json.dumps(file)}: {json.dumps(each)}"
            for file, each in sorted(kept.items())
            if (CHECKOUT / file).exists()
        ]
        parts.append(f'"{part}": {{\n' + ",\n".join(lines) + "\n}")
    FILE.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


def median_costs(part: str) -> dict[str, Cost]:
    """Return the median of the kept measurements of each file."""
    return {
        file: Cost(*(round(median(each), 1) for each in zip(*kept, strict=True)))
        for file, kept in read_costs()[part].items()
        if kept
    }


def sum_costs(costs: Mapping[str, Cost]) -> Cost:
    return Cost(*(sum(each[number] for each in costs.values()) for number in range(2)))


# --- measuring ------------------------------------------------------------------------------------


def part_of(item: pytest.Item) -> str:
    return "test" if item.get_closest_marker("slow") is None else "rest"


class CostMeter:
    """Measures the tests of this process; in the process that has workers, adds up theirs."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._spent: dict[str, dict[str, list[float]]] = {part: {} for part in PARTS}
        self._failed: set[str] = set()  # files, whose tests may have ended early

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed.add(report.nodeid.partition("::")[0])

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        began, before = time.monotonic(), _processor_seconds()
        result = yield
        file = os.path.relpath(item.path, CHECKOUT)
        self._add(
            part_of(item), file, time.monotonic() - began, max(0, _processor_seconds() - before)
        )
        return result

    def pytest_sessionfinish(self) -> None:
        output = getattr(self._config, "workeroutput", None)
        if output is not None:
            output["costs"] = self._spent

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        for part, files in getattr(node, "workeroutput", {}).get("costs", {}).items():
            for file, cost in files.items():
                self._add(part, file, *cost)

    def pytest_terminal_summary(self, exitstatus: int) -> None:
        ended = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        if ended and not hasattr(self._config, "workeroutput"):
            keep_costs(
                {
                    part: {
                        file: Cost(*(round(each, 1) for each in spent))
                        for file, spent in files.items()
                        if file not in self._failed
                    }
                    for part, files in self._spent.items()
                },
                {part: files for part, files in self._spent.items() if files and self._picks_all},
            )
            write_page()

    @property
    def _picks_all(self) -> bool:
        option = self._config.option
        return not option.keyword and self._config.args_source is not _ARGUMENTS

    def _add(self, part: str, file: str, *seconds: float) -> None:
        spent = self._spent[part].setdefault(file, [0.0, 0.0])
        for number, each in enumerate(seconds):
            spent[number] += each


def _processor_seconds() -> float:
    """Return what this process and all its descendants have used, also those that have ended."""
    me = psutil.Process(os.getpid())
    total = 0.0
    for process in [me, *me.children(recursive=True)]:
        try:
            total += sum(process.cpu_times()[:4])
        except psutil.NoSuchProcess:
            continue
    return total


# --- the page -------------------------------------------------------------------------------------


def write_page() -> None:
    """Write the tables of docs/lab/tests.md."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}{tables()}{END}{after}", encoding="utf-8")


def tables() -> str:
    """Return what the kept measurements say, as Markdown."""
    costs = {part: median_costs(part) for part in PARTS}
    lines = _table("run", {f"`{PARTS[part]}`": sum_costs(own) for part, own in costs.items()})
    for part, own in costs.items():
        folders: dict[str, list[Cost]] = defaultdict(list)
        for file, cost in own.items():
            folders["/".join(Path(file).parts[1:-1][:2]) or "beside the folders"].append(cost)
        summed = {
            f"`{name}`": Cost(*map(sum, zip(*found, strict=True)))
            for name, found in folders.items()
        }
        for what, rows in (
            ("folders", summed),
            ("files", {f"`{file.removeprefix('tests/')}`": cost for file, cost in own.items()}),
        ):
            most = dict(sorted(rows.items(), key=lambda row: -row[1].wall)[:_FILES_SHOWN])
            lines += ["", f"The {what} that cost most in `{PARTS[part]}`:", ""]
            lines += _table(what.removesuffix("s"), most)
    return "\n" + "\n".join(lines) + "\n\n"


def _table(title: str, rows: Mapping[str, Cost]) -> list[str]:
    return [
        f"| {title} | wall, s | processor, s |",
        "| --- | --- | --- |",
        *(f"| {name} | {cost.wall:,.0f} | {cost.processor:,.0f} |" for name, cost in rows.items()),
    ]


if __name__ == "__main__":
    write_page()
