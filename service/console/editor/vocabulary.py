"""What the spec editor offers: specs to start from, and the words that it completes."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from jobs.core.plan.scalar_functions import FUNCTIONS
from jobs.core.sql.select import AGGREGATES
from schemas.spec.file import list_keys
from schemas.spec.job import SCHEMA_LINE, JobSpec
from schemas.types.json_types import JsonObject


def _split(text: str) -> list[str]:
    return [" ".join(word.split()) for word in text.split("|")]


_TYPES = _split("""
    BOOLEAN | TINYINT | SMALLINT | INT | BIGINT | FLOAT | DOUBLE | DECIMAL(10, 2) | STRING | DATE |
    TIME | TIMESTAMP(3) | TIMESTAMP_LTZ(3) | BINARY
""")
_WORDS = _split("""
    SELECT | FROM | JOIN | LEFT JOIN | RIGHT JOIN | FULL JOIN | ON | USING | EXISTS | WHERE |
    GROUP BY | HAVING | AS | AND | OR | NOT | CASE | WHEN | THEN | ELSE | END | IS NULL |
    IS NOT NULL | IN | BETWEEN | LIKE | DISTINCT | CAST | FILTER | INTERVAL | TUMBLE | HOP |
    SESSION | CUMULATE
""")


@cache
def make_vocabulary() -> JsonObject:
    """Return the words as JSON; keys and values are by the path of their section or key."""
    keys, values = list_keys(JobSpec)
    return {
        "keys": keys,
        "values": values,
        "types": _TYPES,
        "words": _WORDS,
        "functions": sorted({*FUNCTIONS, *AGGREGATES}),
    }


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
