"""Specs to start from, for the menu of the editor."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

from schemas.spec.job import SCHEMA_LINE

_NAME = "name: "


@dataclass(frozen=True, slots=True)
class Starter:
    name: str  # in addresses
    label: str
    text: str


_LABELS = {
    "totals": "Totals by group",
    "windows": "Windows of an hour",
    "debezium": "A Debezium source, the latest row of each key",
    "joined": "Two tables, joined",
    "chained": "The changelog of another job",
}
_SPECS = Path(__file__).with_name("starter_specs")
STARTERS = tuple(
    Starter(name, label, f"{SCHEMA_LINE}\n{(_SPECS / f'{name}.yaml').read_text()}")
    for name, label in _LABELS.items()
)


def find_starter(name: str) -> Starter:
    """Return the starter of a name, or the first one."""
    return next((each for each in STARTERS if each.name == name), STARTERS[0])


def with_free_name(text: str, taken: Container[str]) -> str:
    """Return the text with a job name that no job has yet."""
    lines = text.split("\n")
    index = next((at for at, line in enumerate(lines) if line.startswith(_NAME)), None)
    if index is None or (name := lines[index].removeprefix(_NAME)) not in taken:
        return text
    number = next(number for number in range(2, 1_000_000) if f"{name}-{number}" not in taken)
    lines[index] = f"{_NAME}{name}-{number}"
    return "\n".join(lines)
