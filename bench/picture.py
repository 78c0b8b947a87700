"""Draw the figures of a run as bars, with a panel for each workload and unit.

results.json ──► figures ──► panels ──► SVG

python -m bench.picture RESULTS.json... PICTURE.svg     several runs in one picture
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from bench.frame import Figure

WIDTH, NAME_WIDTH, BAR_WIDTH = 1_010, 510, 250
LINE, GAP = 20, 14
OURS, THEIRS, KEPT, MISSED = "#2563eb", "#94a3b8", "#15803d", "#b91c1c"
SMALL = 100
_HEAD = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
    'font-family="system-ui, sans-serif" font-size="13" fill="#0f172a">\n'
    '<rect width="{width}" height="{height}" fill="#ffffff"/>\n'
)


def draw_figures(figures: Sequence[Figure]) -> str:
    """Return an SVG of all figures, in their order."""
    parts, y = [], GAP
    for (workload, unit), shown in _panels(figures).items():
        y += LINE
        title = f"{workload}, {unit}" if unit else workload
        parts.append(f'<text x="{GAP}" y="{y}" font-weight="600">{escape(title)}</text>')
        most = max(figure.value for figure in shown) or 1.0
        for figure in shown:
            y += LINE
            parts += _bar(figure, most, y)
        y += GAP
    return _HEAD.format(width=WIDTH, height=y + GAP) + "\n".join(parts) + "\n</svg>\n"


def _panels(figures: Iterable[Figure]) -> dict[tuple[str, str], list[Figure]]:
    panels: dict[tuple[str, str], list[Figure]] = {}
    for figure in figures:
        panels.setdefault((figure.workload, figure.unit), []).append(figure)
    return panels


def _bar(figure: Figure, most: float, y: int) -> Iterator[str]:
    colour = OURS if figure.engine == "retally" else THEIRS
    width = max(1.0, BAR_WIDTH * figure.value / most)
    number = f"{figure.value:,.2f}" if figure.value < SMALL else f"{figure.value:,.0f}"
    end = NAME_WIDTH + width + 6
    name = f"{figure.what} ({figure.engine})"
    yield f'<text x="{NAME_WIDTH - 8}" y="{y}" text-anchor="end">{escape(name)}</text>'
    yield (
        f'<rect x="{NAME_WIDTH}" y="{y - LINE + 8}" width="{width:.1f}" height="{LINE - 6}" '
        f'fill="{colour}"/>'
    )
    verdict = ""
    if figure.holds is not None:
        colour, word = (KEPT, "holds") if figure.holds else (MISSED, "missed")
        verdict = f' <tspan fill="{colour}">{escape(figure.bound)} {word}</tspan>'
    yield f'<text x="{end:.1f}" y="{y}">{number}{verdict}</text>'


def main(arguments: list[str]) -> None:
    *results, picture = map(Path, arguments)
    figures = [
        Figure(**figure) for path in results for figure in json.loads(path.read_text())["figures"]
    ]
    picture.write_text(draw_figures(figures))


if __name__ == "__main__":
    main(sys.argv[1:])
