"""Compaction and the sweep of a table with views: each view is merged by itself."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

from pyspark.sql import SparkSession

from jobs.core.fold.program import Program
from jobs.core.job.views import plans_of
from jobs.core.values.change import Op
from jobs.edge.process.job_directory import JobDirectory
from jobs.edge.table.delta_epochs import EpochTable
from jobs.edge.table.epoch_files import TableLayout
from jobs.edge.table.file_writer import by_part, file_name, write_file
from jobs.edge.table.job_specs import write_specs
from jobs.reading.files import live_files, open_table
from jobs.reading.parts import CHANGELOG, EPOCHS
from jobs.reading.version import TableVersion
from jobs.running.clock import JobClock
from jobs.running.job_table import unite_schemas
from jobs.running.maintenance import Maintenance
from jobs.running.pipeline import make_pipeline
from schemas.limits import COMPACTION_FAN_IN, ORPHAN_AGE_SECONDS_MIN
from schemas.spec.file import load_spec
from schemas.table.epoch import VIEWS
from schemas.table.view_path import view_root
from tests.support.epoch_rows import epoch_row

SPEC = {
    "name": "items",
    "source": {"topic": "t"},
    "columns": {"k": "STRING", "v": "BIGINT"},
    "query": "SELECT COUNT(*) AS n FROM t",
    "views": {
        "sums": {"query": "SELECT k, SUM(v) AS s FROM t GROUP BY k"},
        "tops": {"query": "SELECT k, MAX(v) AS top FROM t GROUP BY k"},
    },
}


def changes_of(table: Path) -> dict[str, list[dict[str, Any]]]:
    found = {}
    for view in ("", "sums", "tops"):
        rows = TableVersion(view_root(table, view)).changelog(0, 1_000)
        found[view] = [] if rows is None else rows.sort_by([("epoch", "ascending")]).to_pylist()
    return found


def test_each_view_is_merged_by_itself_and_files_of_no_version_are_swept(tmp_path: Path) -> None:
    spec, place = load_spec(SPEC), JobDirectory(tmp_path, "items")
    plans = plans_of(spec)
    layouts = {name: TableLayout(Program(plan)) for name, plan in plans.items()}
    place.home.mkdir(parents=True)
    table = EpochTable.create(place.own_table, layouts[""], unite_schemas(layouts.values()))
    write_specs(spec, place)
    shares = {
        name: {"plan": plan.fingerprint, "counters": {"groups": 1}} for name, plan in plans.items()
    }
    newest = None
    for number in range(COMPACTION_FAN_IN + 1):
        files, uuid = [], uuid4().hex
        for name, layout in layouts.items() if number else ():
            key = ("a",) if name else ()
            rows = layout.changelog_table(number, [0], [(Op.INSERT, key, (number,))])
            written = file_name(CHANGELOG, number, uuid, "f0")
            files.append(write_file(view_root(table.root, name), written, rows).of_view(name))
        newest = epoch_row(
            number, uuid=uuid, counters={"groups": 3, VIEWS: shares}, files=by_part(files)
        )
        table.commit_epoch(newest, files)
    assert newest is not None
    before = changes_of(place.own_table)
    assert [len(rows) for rows in before.values()] == [COMPACTION_FAN_IN] * 3
    pipeline = make_pipeline(
        spec,
        plans,
        place,
        table,
        newest,
        spark=cast(SparkSession, None),
        connections={},
        cores=1,
        on_commit=lambda row, files: None,
        clock=JobClock(spec, {}, newest, read_log_ends=dict),
    )
    maintenance = Maintenance(pipeline, place.home)
    wanted = {CHANGELOG, "sums:changelog", "tops:changelog", EPOCHS}
    deadline = time.monotonic() + 60
    while True:
        maintenance.work(None)
        merged = {f.part for f in live_files(open_table(place.own_table)) if f.tier == 1}
        if merged == wanted:
            break
        assert time.monotonic() < deadline, merged
        time.sleep(0.02)
    maintenance.close()
    assert changes_of(place.own_table) == before
    orphan = view_root(place.own_table, "sums") / "part=changelog" / "left-over.parquet"
    assert isinstance(orphan, Path)
    of_no_view = view_root(place.own_table, "dropped") / "part=changelog" / "left-over.parquet"
    assert isinstance(of_no_view, Path)
    of_no_view.parent.mkdir(parents=True)
    old = time.time() - 2 * ORPHAN_AGE_SECONDS_MIN
    for path in (orphan, of_no_view):
        path.touch()
        os.utime(path, (old, old))
    maintenance.sweep()
    assert not orphan.exists()
    assert not of_no_view.exists()
    assert changes_of(place.own_table) == before
