"""Print the figures of a run, and write them with everything needed to repeat the run."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterable
from pathlib import Path

from rich.table import Table

from bench.flink import peer
from bench.frame import Bench, Figure
from bench.machine import machine, versions
from bench.picture import draw_figures

SMALL = 100


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


def write(bench: Bench, path: Path, seconds: float) -> None:
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
