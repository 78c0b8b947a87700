"""Count the bytes written to a table, from the entries that its log still has."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

STATE_PARTS = ("accumulators", "multisets", "timers")


@dataclass(slots=True)
class Written:
    """Bytes written to a table by kind."""

    state: int = 0  # by epochs: changed state
    rest: int = 0  # by epochs: changelog and other parts
    merged: int = 0
    log: int = 0  # entries and checkpoints

    @property
    def of_epochs(self) -> int:
        """The bytes that epochs wrote, without merges and log."""
        return self.state + self.rest

    @property
    def all(self) -> int:
        return self.of_epochs + self.merged + self.log

    @property
    def times(self) -> float:
        """All bytes divided by the bytes of changed state."""
        return self.all / self.state

    def add(self, other: Written) -> None:
        self.state += other.state
        self.rest += other.rest
        self.merged += other.merged
        self.log += other.log


def newest_version(table: Path) -> int:
    return _versions(table)[-1]


def written_since(table: Path, version: int) -> Written:
    """Count the bytes of the commits after this version, with checkpoints."""
    written = Written()
    for later in (each for each in _versions(table) if each > version):
        entry = table / "_delta_log" / f"{later:020d}.json"
        actions = [json.loads(line) for line in entry.read_text().splitlines()]
        (info,) = (action["commitInfo"] for action in actions if "commitInfo" in action)
        of_epoch = info.get("retally", {}).get("what", "").startswith("epoch ")
        written.log += entry.stat().st_size
        for added in (action["add"] for action in actions if "add" in action):
            if not of_epoch:
                written.merged += added["size"]
            elif added["partitionValues"]["part"] in STATE_PARTS:
                written.state += added["size"]
            else:
                written.rest += added["size"]
    for checkpoint in (table / "_delta_log").glob("*.checkpoint*.parquet"):
        if int(checkpoint.name[:20]) > version:
            written.log += checkpoint.stat().st_size
    return written


def _versions(table: Path) -> list[int]:
    return sorted(int(path.stem) for path in (table / "_delta_log").glob("[0-9]*[0-9].json"))
