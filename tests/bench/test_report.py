"""A run ends with a table of its goals."""

from __future__ import annotations

import io

from rich.console import Console

from bench.frame import Figure
from bench.report import goals

FIGURES = [
    Figure("backfill", "retally", "rate when warm", 120_000, "changes/s"),
    Figure("backfill", "retally", "rate, of that of Flink heap", 2.96, "times", ">= 2.5", True),
    Figure("shapes", "retally", "one hot key", 2.2, "times", ">= 2.5", False),
]


def test_each_goal_is_named_with_its_figure_and_whether_it_holds() -> None:
    console = Console(file=io.StringIO(), width=120)
    with console.capture() as shown:
        console.print(goals(FIGURES))
    lines = [line.split("│")[1:-1] for line in shown.get().splitlines() if "│" in line]
    assert [[cell.strip() for cell in line] for line in lines] == [
        ["backfill", "rate, of that of Flink heap", ">= 2.5", "2.96 times", "holds"],
        ["shapes", "one hot key", ">= 2.5", "2.20 times", "missed"],
    ]
