"""Change scripts: changes and their expected changelog, in tests/vectors/*.changes.

    # Why this must be so.
    query
    k STRING, v INT                                   the columns of the source
    SELECT k, MAX(v) AS top FROM t GROUP BY k

    bundle
    +I a 5                                            op and values; NULL; "with blanks"; a last
    -D b 1 @2                                         word @N is the partition, 0 otherwise
    ----
    +I a 5                                            the changelog of the bundle
    dropped 1                                         expected counters

`query ttl=1h` sets the state's TTL. `emit_expired=false` lets groups expire silently.
`early_retractions=drop` drops retractions before the first row of a group. With `empty=row`, the
first `clock` emits the row of an empty input. Between bundles,
`clock 500` lets 500 ms pass. With `query clock=event`, bundles are epochs whose results are
withheld until `release`. The expected changelog follows both.

Core, simulation and Spark with a broker all run the same scripts. Only the order of different keys
may differ: compare `per_key`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

VECTORS = Path(__file__).parents[2] / "vectors"
SEPARATOR = "----"
OPS = ("+I", "-U", "+U", "-D")
_WORDS = re.compile(r'"(?:[^"\\]|\\.)*"|\S+')
_PLAIN = re.compile(r"[^\s\"@#][^\s\"]*")


@dataclass(frozen=True, slots=True)
class ScriptedChange:
    op: str
    values: tuple[str | None, ...]
    partition: int


@dataclass(slots=True)
class ScriptedBundle:
    """The changes of one bundle, and the expected lines."""

    changes: list[ScriptedChange]
    expected: list[str]
    lines: tuple[int, int]  # where the expected lines stand in the file
    clock_ms: int = 0  # without changes: time that passes
    release: bool = False  # without changes: withheld results are due


@dataclass(slots=True)
class Script:
    """One file."""

    path: Path
    columns: dict[str, str]
    query: str
    ttl: str
    emit_expired: bool
    event_clock: bool
    early_retractions: str
    empty: str
    bundles: list[ScriptedBundle] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.path.stem

    def spec(self, **sections: Any) -> dict[str, Any]:
        """A job spec for the script; its bundles are ended by hand, not by size."""
        return {
            "name": "script",
            "source": {"topic": "script", "format": "changelog-json"},
            "columns": self.columns,
            "query": self.query,
            "empty": self.empty,
            "early_retractions": self.early_retractions,
            "state": {"ttl": self.ttl, "emit_expired": self.emit_expired},
            **sections,
        }

    def steps(self, bundle: ScriptedBundle) -> list[dict[str, Any]]:
        """The bundle's changes as steps of a replay."""
        return [
            {
                "op": change.op,
                "row": dict(zip(self.columns, change.values, strict=True)),
                "partition": change.partition,
            }
            for change in bundle.changes
        ]

    def records(self, bundle: ScriptedBundle) -> list[tuple[int, bytes]]:
        """The bundle's changes as changelog-json records: partition and value."""
        records: list[tuple[int, bytes]] = []
        for step in self.steps(bundle):
            row = {name: self._typed(name, text) for name, text in step["row"].items()}
            value = {"op": step["op"], "row": row, "epoch": 1, "seq": len(records)}
            records.append((step["partition"], json.dumps(value).encode()))
        return records

    def rewrite(self, outcomes: Sequence[Sequence[str]]) -> None:
        """Replace the expected lines by the actual ones."""
        lines = self.path.read_text(encoding="utf-8").splitlines()
        for bundle, outcome in reversed(list(zip(self.bundles, outcomes, strict=True))):
            start, end = bundle.lines
            lines[start:end] = outcome
        self.path.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def _typed(self, name: str, text: str | None) -> str | bool | None:
        return text == "true" if text is not None and self.columns[name] == "BOOLEAN" else text


def scripts() -> list[Script]:
    """Every script, in the order of their names."""
    return [read(path) for path in sorted(VECTORS.glob("*.changes"))]


def read(path: Path) -> Script:
    lines = path.read_text(encoding="utf-8").splitlines()
    script: Script | None = None
    at = 0
    while at < len(lines):
        word, *options = lines[at].split() or [""]
        at += 1
        if not word or word.startswith("#"):
            continue
        end = next((n for n in range(at, len(lines)) if not lines[n].strip()), len(lines))
        if word == "query" and script is None:
            script = _query(path, lines[at:end], dict(option.split("=") for option in options))
        elif word in ("bundle", "clock", "release") and script is not None:
            bundle = _bundle(path, lines, at, end)
            bundle.clock_ms = int(options[0]) if word == "clock" else 0
            bundle.release = word == "release"
            if bool(bundle.changes) == (word != "bundle"):
                raise ValueError(f"{path.name}:{at}: only a bundle has changes, and it has some")
            script.bundles.append(bundle)
        else:
            raise ValueError(f"{path.name}:{at}: {lines[at - 1]!r} is no directive here")
        at = end
    if script is None or not script.bundles:
        raise ValueError(f"{path.name}: a script is one query and then bundles")
    return script


def shown(op: str, values: Iterable[Any]) -> str:
    """A changelog row as a line of a script."""
    return " ".join([op, *map(_word, values)])


def per_key(lines: Iterable[str], key_columns: int) -> dict[tuple[str, ...], list[str]]:
    """Group lines by their key, which is their first values; keep the order of each key."""
    by_key: dict[tuple[str, ...], list[str]] = {}
    for line in lines:
        op, *words = _WORDS.findall(line)
        by_key.setdefault(tuple(words[:key_columns]) if op in OPS else (op,), []).append(line)
    return by_key


def _query(path: Path, lines: Sequence[str], options: dict[str, str]) -> Script:
    declared, *sql = lines
    # A comma inside a type's parentheses does not end a column.
    columns = dict(part.split(None, 1) for part in re.split(r",\s*(?![^(]*\))", declared))
    ttl, emit_expired = options.pop("ttl", "0s"), options.pop("emit_expired", "true") == "true"
    event_clock = options.pop("clock", "processing") == "event"
    early = options.pop("early_retractions", "keep")
    empty = options.pop("empty", "none")
    script = Script(path, columns, " ".join(sql), ttl, emit_expired, event_clock, early, empty)
    if options:
        raise ValueError(f"{path.name}: query has no option {', '.join(options)}")
    return script


def _bundle(path: Path, lines: Sequence[str], start: int, end: int) -> ScriptedBundle:
    separator = lines.index(SEPARATOR, start, end)
    changes = [_change(path, number, lines[number]) for number in range(start, separator)]
    return ScriptedBundle(changes, list(lines[separator + 1 : end]), (separator + 1, end))


def _change(path: Path, number: int, line: str) -> ScriptedChange:
    op, *words = _WORDS.findall(line)
    if op not in OPS:
        raise ValueError(f"{path.name}:{number + 1}: {op!r} is none of {', '.join(OPS)}")
    partition = int(words.pop()[1:]) if words[-1].startswith("@") else 0
    return ScriptedChange(op, tuple(_value(word) for word in words), partition)


def _value(word: str) -> str | None:
    if word == "NULL":
        return None
    return str(json.loads(word)) if word.startswith('"') else word


def _word(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, list) else str(value)
    plain = _PLAIN.fullmatch(text) and text != "NULL"
    return text if plain else json.dumps(text, ensure_ascii=False)
