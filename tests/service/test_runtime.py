"""A job that is deleted, and another of its name that comes while its files are deleted."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.edge.process.job_directory import JobDirectory
from schemas.spec.connections import load_connections
from schemas.spec.file import load_spec, spec_text
from schemas.types.sql_types import INT, STRING
from service.settings import Settings
from tests.support.service.application import create_application
from tests.support.tables.written_table import WrittenTable

QUERY = "SELECT name, SUM(v) AS total FROM t GROUP BY name"


def test_a_job_that_is_made_while_an_older_one_is_deleted_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    WrittenTable(tmp_path, QUERY, {"name": STRING, "v": INT})
    settings = Settings(tmp_path, load_connections(None, "127.0.0.1:9"))
    application, _ = create_application(settings)
    runtime = application.state.runtime
    spec = spec_text(load_spec(JobDirectory(tmp_path, "items").spec)).encode()
    runtime.put("items", spec, None, None, replace=False)
    deleted: list[Path] = []

    def discard_slowly(path: Path) -> None:
        deleted.append(path)
        if len(deleted) == 1:
            runtime.put("items", spec, None, None, replace=False)

    monkeypatch.setattr("service.runtime.try_discard", discard_slowly)
    try:
        runtime.delete("items", drop_data=True, if_match=None)
        assert deleted
        assert runtime.find_live_table("items").paths.run_spec.exists()
    finally:
        for live_table in runtime._take_live_tables("items"):
            live_table.close()
