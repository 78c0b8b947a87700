"""What a table had written to it is told from its log, file by file."""

from __future__ import annotations

from pathlib import Path

from bench.written import newest_version, written_since
from jobs.edge.table.compaction import Merge
from jobs.edge.table.delta_epochs import write_checkpoint
from jobs.reading.parts import ACCUMULATORS
from tests.support.tables.folded_table import FoldedTable, insert


def _bytes(made: FoldedTable, part: str = "") -> int:
    return sum(path.stat().st_size for path in made.root.glob(f"part={part}*/*.parquet"))


def test_what_epochs_write_is_state_or_something_else(tmp_path: Path) -> None:
    made = FoldedTable(tmp_path / "epochs")
    since, before = newest_version(made.root), _bytes(made)
    for value in range(3):
        made.epoch(insert("a", value))
    written = written_since(made.root, since)
    assert written.of_epochs == _bytes(made) - before
    assert written.state == _bytes(made, "accumulators") + _bytes(made, "multisets")
    assert written.merged == 0


def test_merges_and_the_log_count_too(tmp_path: Path) -> None:
    made = FoldedTable(tmp_path / "epochs")
    for value in range(3):
        made.epoch(insert("a", value))
    since = newest_version(made.root)
    files = tuple(file for file in made.table.live_files() if file.part == ACCUMULATORS)
    (added,) = made.merge(Merge(ACCUMULATORS, 1, files))
    write_checkpoint(made.root, made.table.version)
    written = written_since(made.root, since)
    log = made.root / "_delta_log"
    (checkpoint,) = log.glob("*.checkpoint.parquet")
    entry = log / f"{made.table.version:020d}.json"
    assert written.merged == (made.root / added.path).stat().st_size
    assert written.log == entry.stat().st_size + checkpoint.stat().st_size
    assert written.of_epochs == 0
