"""Print the figures of a run, write what repeats the run, and keep results for the pages.

    make bench ARGS="--only W --keep" ──► bench/kept.json ──► docs/performance.md: rows of ROWS
                                                          │        └─► other pages: COPIES
                                                          └─► docs/lab/performance.md: the runs

A row of ROWS is a row of the table of results by its first cell, with templates of what was
measured: `[figure|.2f]` is a figure of retally, `[engine: figure|.2f]` one of another engine. The
verdict is that of the goals among them.
"""

from __future__ import annotations

import dataclasses
import json
import re
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from rich.table import Table

from bench.flink import peer
from bench.frame import Bench, Figure
from bench.machine import machine, versions
from bench.picture import draw_figures

SMALL = 100
CHECKOUT = Path(__file__).resolve().parents[1]
KEPT = Path(__file__).parent / "kept.json"
RESULTS = CHECKOUT / "docs" / "performance.md"
RUNS = CHECKOUT / "docs" / "lab" / "performance.md"
BEGIN, END = "<!-- kept runs -->\n", "<!-- /kept runs -->\n"
_FIGURE = re.compile(r"\[([^\[\]|]+)\|([^\[\]|]+)\]")


def show(bench: Bench) -> None:
    """Print all figures, and then the goals among them."""
    table = Table(title="retally bench")
    for column in ("workload", "engine", "what"):
        table.add_column(column)
    table.add_column("figure", justify="right")
    for figure in bench.figures:
        table.add_row(figure.workload, figure.engine, figure.what, _number(figure))
    bench.console.print(table)
    bench.console.print(goals(bench.figures))


def goals(figures: Iterable[Figure]) -> Table:
    """Return a table of the figures that have a goal, and whether each holds."""
    table = Table(title="goals")
    for column in ("workload", "what", "goal"):
        table.add_column(column)
    table.add_column("figure", justify="right")
    table.add_column("")
    for figure in figures:
        if figure.holds is not None:
            verdict = "[green]holds[/green]" if figure.holds else "[red]missed[/red]"
            table.add_row(figure.workload, figure.what, figure.bound, _number(figure), verdict)
    return table


def _number(figure: Figure) -> str:
    number = f"{figure.value:,.2f}" if figure.value < SMALL else f"{figure.value:,.0f}"
    return f"{number} {figure.unit}".strip()


def write(bench: Bench, path: Path, seconds: float) -> dict[str, Any]:
    """Write the results of a run and their picture; return the results."""
    document = {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "seconds": round(seconds, 1),
        "machine": machine(),
        "others_share_at_most": round(bench.others_share_max, 3),
        "versions": versions(),
        "options": dataclasses.asdict(bench.options),
        "streams": [dataclasses.asdict(shape) for shape in dict.fromkeys(bench.shapes)],
        "flink": {
            "jvm": peer.JVM,
            "options": peer.OPTIONS,
            "tuned": {"jvm": peer.TUNED_JVM, "options": peer.TUNED_OPTIONS},
        },
        "figures": [dataclasses.asdict(figure) for figure in bench.figures],
    }
    path.write_text(json.dumps(document, indent=2) + "\n")
    picture = path.with_suffix(".svg")
    picture.write_text(draw_figures(bench.figures))
    bench.say(f"written to {path}, drawn in {picture.name}")
    return document


# --- the pages ------------------------------------------------------------------------------------


class Row(NamedTuple):
    """Templates of a row's result, and of what it is compared with; None: written by hand."""

    workload: str
    result: str
    compared: str | None = None


_EPOCH = "epoch of 5,000"
_HEAP, _ROCKS = "rate, of that of Flink hashmap", "rate, of that of Flink rocksdb"
_P50_OF_PLAIN, _P99_OF_PLAIN = "p50, of that of plain", "p99, of that of plain"
_AT_RATE, _MEMORY = "readable at 5,000/s", "10,000,000 orders: memory"
ROWS = {
    "latency at 5,000/s with WHERE, p50 and p99": Row(
        "queries",
        f"[WHERE: {_P50_OF_PLAIN}|.2f] and [WHERE: {_P99_OF_PLAIN}|.2f] "
        f"([WHERE: {_AT_RATE}, p50|.2f] and [WHERE: {_AT_RATE}, p99|.2f] s; "
        "[why](lab/performance.md#ordinary-queries))",
        f"the plain query in the same run: [plain: {_AT_RATE}, p50|.2f] and "
        f"[plain: {_AT_RATE}, p99|.2f] s",
    ),
    "the same with `dedupe: pk`": Row(
        "queries",
        f"[dedupe: {_P50_OF_PLAIN}|.2f] and [dedupe: {_P99_OF_PLAIN}|.2f] "
        f"([dedupe: {_AT_RATE}, p50|.2f] and [dedupe: {_AT_RATE}, p99|.2f] s)",
    ),
    f"{_EPOCH} with nine expressions": Row(
        "queries",
        f"[nine expressions: {_EPOCH}, of that of plain|.2f] "
        f"([nine expressions: {_EPOCH}, median|.2f] s)",
    ),
    f"{_EPOCH} with TUMBLE": Row(
        "queries",
        f"[TUMBLE: {_EPOCH}, of that of plain|.2f] ([TUMBLE: {_EPOCH}, median|.2f] s)",
    ),
    "backfill with `dedupe: pk`, rate": Row(
        "queries",
        "[backfill with dedupe, of Flink's rate (hashmap)|.2f]; "
        "[backfill with dedupe, of Flink's rate (rocksdb)|.2f]",
    ),
    "join of orders and customers, rate": Row(
        "joins", f"[{_HEAP}|.2f]; [{_ROCKS}|.2f] ([why](lab/performance.md#joins))"
    ),
    "the join at 5,000/s, p50 and p99": Row(
        "joins",
        f"[{_AT_RATE}, p50, of Flink's (heap)|.2f] and [{_AT_RATE}, p99, of Flink's (heap)|.2f] "
        f"([{_AT_RATE}, p50|.2f] and [{_AT_RATE}, p99|.2f] s)",
        f"Flink with heap state: [Flink hashmap: {_AT_RATE}, p50|.2f] and "
        f"[Flink hashmap: {_AT_RATE}, p99|.2f] s",
    ),
    "the join with 10 million orders, memory": Row(
        "joins",
        f"[{_MEMORY}, of Flink's (heap)|.2f] ([{_MEMORY}, RssAnon at most|,.0f] MiB)",
        f"Flink with heap state: [Flink hashmap: {_MEMORY}, RssAnon at most|,.0f] MiB",
    ),
    "a million orders change with one row of a customer": Row(
        "joins", "[1,000,000 orders change with one row: until committed, median|.2f] s"
    ),
}


class Copy(NamedTuple):
    """A figure of the page of results that another page repeats: the group of each pattern."""

    page: Path
    repeated: str
    original: str


_DOCS = CHECKOUT / "docs"
_COMMIT = r"\n\| commit, over [\d,]+ epochs \|[^|]*\| (\S+) ms"
_NO_KERNELS = r"\n\| without kernels, a slow hour (?:\|[^|]*){%d}\| (\S+) /"
COPIES = (
    Copy(CHECKOUT / "ARCHITECTURE.md", r"\[(\S+) ms\]\(docs/performance\.md\)", _COMMIT),
    Copy(_DOCS / "comparison.md", r"p50 was\s+(\S+) s", _NO_KERNELS % 3),
    Copy(_DOCS / "comparison.md", r"and ours (\S+) s", _NO_KERNELS % 2),
    Copy(_DOCS / "comparison.md", r"(\S+) times its rate", r"times; 1\.5 \| (\S+);"),
    Copy(_DOCS / "comparison.md", r"(\S+) times when it is", r"times; 1\.5 \| \S+; (\S+)"),
    Copy(_DOCS / "comparison.md", r"epoch took (\S+) s", r"foreachBatch \+ MERGE \((\S+) s\)"),
    Copy(_DOCS / "comparison.md", r"upserts: (\S+) s", r"times faster \| \S+ times \((\S+) s\)"),
    Copy(_DOCS / "scale.md", r"(\S+) changes a second in a backfill", r"s when warm \| (\S+)"),
    Copy(_DOCS / "scale.md", r"changes takes (\S+) s", r"epochs of 5,000, median \| (\S+) s"),
    Copy(_DOCS / "scale.md", r"measured: (\S+) MiB at most", r"\n\| memory, MiB \| (\S+)"),
    Copy(_DOCS / "design/commit-protocol.md", r"commit took (\S+) ms", _COMMIT),
    Copy(_DOCS / "design/exact-sums.md", r"\) takes (\S+) µs", r"\n\| COUNT\(\*\) \| (\S+)"),
    Copy(_DOCS / "design/exact-sums.md", r"of INT (\S+) µs", r"\n\| SUM \| (\S+)"),
    Copy(_DOCS / "design/exact-sums.md", r"of DOUBLE (\S+) µs", r"of DOUBLE \| (\S+)"),
    Copy(_DOCS / "design/exact-sums.md", r"(\S+) of the rate", r"`SUM\(CAST.*?` \| (\S+)"),
    Copy(_DOCS / "design/hot-state.md", r"(\S+) times as long", r"in memory \|[^|]*\| (\S+) \("),
)


def keep(results: Mapping[str, Any]) -> None:
    """Keep the figures of each workload of a run instead of earlier ones."""
    kept = read_kept()
    run = {name: results[name] for name in ("at", "machine", "others_share_at_most")}
    for workload in dict.fromkeys(each["workload"] for each in results["figures"]):
        found = [each for each in results["figures"] if each["workload"] == workload]
        kept[workload] = run | {"figures": found}
    KEPT.write_text(json.dumps(dict(sorted(kept.items())), indent=1) + "\n", encoding="utf-8")


def read_kept() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(KEPT.read_text(encoding="utf-8"))
    return found


def render_results(page: str) -> str:
    """Return the page of results with the kept figures."""
    kept = read_kept()
    lines = page.splitlines()
    for label, row in ROWS.items():
        figures = [Figure(**each) for each in kept[row.workload]["figures"]]
        (at,) = [number for number, line in enumerate(lines) if line.startswith(f"| {label} |")]
        cells = lines[at].strip("| ").split(" | ")
        used, cells[2] = _fill(row.result, figures)
        verdicts = [figure.holds for figure in used if figure.holds is not None]
        shown = verdicts if len(set(verdicts)) > 1 else verdicts[:1]
        cells[3] = "; ".join("holds" if holds else "missed" for holds in shown)
        if row.compared is not None:
            _, cells[4] = _fill(row.compared, figures)
        lines[at] = f"| {' | '.join(cells)} |"
    return "\n".join(lines) + "\n"


def _fill(template: str, figures: Iterable[Figure]) -> tuple[list[Figure], str]:
    """Return the figures that a template names, and its text."""
    known = {
        each.what if each.engine == "retally" else f"{each.engine}: {each.what}": each
        for each in figures
    }
    used = [known[name] for name, _ in _FIGURE.findall(template)]
    return used, _FIGURE.sub(lambda found: format(known[found[1]].value, found[2]), template)


def render_runs(page: str) -> str:
    """Return the page of notes with the date and the machine of each kept run."""
    before, _, rest = page.partition(BEGIN)
    lines = ["| workload | taken | machine | additions, a million | other work |"]
    lines.append("| --- | --- | --- | --- | --- |")
    for workload, run in read_kept().items():
        machine = run["machine"]
        taken = time.strftime("%d %B %Y, %H:%M", time.strptime(run["at"], "%Y-%m-%dT%H:%M:%SZ"))
        lines.append(
            f"| {workload} | {taken} UTC | {machine['cores']} cores, {machine['processor']}, "
            f"{machine['memory_gib']} GiB | {machine['million_additions_ms']} ms | "
            f"{100 * run['others_share_at_most']:.1f} % |"
        )
    return before + BEGIN + "\n" + "\n".join(lines) + "\n\n" + END + rest.partition(END)[2]


def render_copies(page: str, copies: Iterable[Copy]) -> str:
    """Return a page with the figures that it repeats from the page of results."""
    results = RESULTS.read_text(encoding="utf-8")
    for copy in copies:
        (figure,) = re.findall(copy.original, results)
        (found,) = re.finditer(copy.repeated, page)
        page = page[: found.start(1)] + figure + page[found.end(1) :]
    return page


# The page of results first, because others repeat it.
PAGES: dict[Path, Callable[[str], str]] = {RESULTS: render_results, RUNS: render_runs}
for _page in dict.fromkeys(copy.page for copy in COPIES):
    PAGES[_page] = partial(render_copies, copies=[copy for copy in COPIES if copy.page == _page])


def write_pages() -> None:
    for path, render in PAGES.items():
        path.write_text(render(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    write_pages()
