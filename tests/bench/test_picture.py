"""The picture of a run shows every figure, and which bounds it missed."""

from __future__ import annotations

from xml.etree import ElementTree

from bench.frame import Figure
from bench.picture import BAR_WIDTH, draw_figures

SVG = "{http://www.w3.org/2000/svg}"
FIGURES = [
    Figure("backfill", "retally", "rate when warm", 120_000, "changes/s", ">= 2 < 3", True),
    Figure("backfill", "Flink hashmap", "rate when warm", 60_000, "changes/s"),
    Figure("latency", "retally", "p99", 1.5, "s", "< 1.0", False),
]


def test_every_figure_has_a_bar_as_long_as_its_share_of_the_greatest() -> None:
    root = ElementTree.fromstring(draw_figures(FIGURES))
    bars = [float(bar.attrib["width"]) for bar in root.iter(f"{SVG}rect")][1:]  # behind the ground
    assert bars == [BAR_WIDTH, BAR_WIDTH / 2, BAR_WIDTH]


def test_it_says_which_bounds_hold() -> None:
    root = ElementTree.fromstring(draw_figures(FIGURES))
    assert [part.text for part in root.iter(f"{SVG}tspan")] == [">= 2 < 3 holds", "< 1.0 missed"]


def test_a_run_without_figures_is_a_picture_too() -> None:
    ElementTree.fromstring(draw_figures([]))
