"""docs/recovery.md and docs/upgrade.md: the copy of a running job is a whole table; formats."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from deltalake import DeltaTable

from jobs.cli import main as command
from jobs.edge.table.compaction import due_merge
from schemas.spec.file import load_spec, write_spec
from schemas.table.epoch import FORMAT_VERSION, OLDEST_FORMAT
from tests.docs.documents import Items, block, ordered, rows_of, text
from tests.support.documents import COLUMNS, QUERY
from tests.support.tables.folded_table import insert


def test_a_copy_of_a_running_job_is_the_epoch_at_which_its_log_was_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Between the copy of the log and that of the files the job goes on, and merges files."""
    monkeypatch.chdir(tmp_path)
    home = tmp_path / "data" / "jobs" / "items"
    items = Items(home / "epochs")
    source = {"topic": "shop.product"}
    spec = {"name": "items", "source": source, "columns": COLUMNS, "query": QUERY}
    write_spec(home / "spec.yaml", load_spec(spec))
    items.first()
    for number in range(40):
        items.change(insert("bolt", number))
    epoch = items.newest.epoch
    of_views = ("views/top.yaml", "epochs/view=top/part=changelog/1.parquet")
    for name in of_views:
        (home / name).parent.mkdir(parents=True)
        (home / name).touch()

    lines = block("recovery.md", "sh", "_delta_log").splitlines()
    make, log, files, kept, directories, read = lines
    shell(make)
    shell(log)
    items.second()
    while (merge := due_merge(items.table.live_files(), items.newest.epoch)) is not None:
        items.merge(merge)
    shell(files)
    shell(kept)
    shell(directories)
    (tmp_path / "data" / "files").mkdir()
    (tmp_path / "data" / "files" / "a.log").touch()
    shell(directories)
    assert (tmp_path / "backup" / "files" / "a.log").exists()
    assert all((tmp_path / "backup" / "jobs" / "items" / name).exists() for name in of_views)
    assert command.main([*read.split()[1:], "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert ordered(rows) == items.results(epoch) != items.results()


def shell(line: str) -> None:
    subprocess.run(line, shell=True, check=True)


def test_the_formats_of_the_page_are_those_of_the_code(tmp_path: Path) -> None:
    assert f"| the job's table | {FORMAT_VERSION}; {OLDEST_FORMAT} is read" in text("upgrade.md")
    items = Items(tmp_path / "epochs")
    configuration = DeltaTable(str(items.root)).metadata().configuration
    assert configuration["retally.formatVersion"] == str(FORMAT_VERSION)


def test_every_code_that_the_pages_name_is_one() -> None:
    known = set(rows_of("troubleshooting.md", "## Why a job ended"))
    known |= set(rows_of("troubleshooting.md", "## Refusals of the service"))
    for page in ("recovery.md", "upgrade.md", "consuming.md"):
        words = set(re.findall(r"`([a-z]+(?:-[a-z]+)+)`", text(page)))
        words = {word for word in words if not word.endswith(("-json", "-avro"))} - {
            "kafka-clients",
            "items-changes",
        }
        assert words <= known, page
