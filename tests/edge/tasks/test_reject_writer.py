"""Rejected messages are kept with their source, whatever a producer has stamped them with."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.core.plan.tree import Plan
from jobs.core.sql.select import parse_query
from jobs.core.values.change import Rejected
from jobs.edge.kafka.records import Record
from jobs.edge.table.file_writer import EpochAttempt
from jobs.edge.tasks.reject_writer import RejectWriter
from schemas.table.epoch import TopicPartition
from schemas.table.parquet_file import rows_in
from schemas.types.sql_types import STRING

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
MS = int(NOON.timestamp()) * 1_000


PLAN = parse_query("SELECT k, COUNT(*) AS n FROM t GROUP BY k", {"k": STRING})


def reject(tmp_path: Path, plan: Plan, stamp: int | None = None) -> Any:
    """Refuse a message, and return its row."""
    target: Any = SimpleNamespace(plan=plan, root=tmp_path, attempt=EpochAttempt(1, "u"), pieces=())
    rejects = RejectWriter(target, "m0")
    rejects.add(
        TopicPartition("t", 0), Rejected("not JSON"), Record(5, stamp, None, b"{", value_bytes=1)
    )
    rejects.write()
    (row,) = rows_in(tmp_path / rejects.files[0].path).to_pylist()
    return row


@pytest.mark.parametrize(
    ("stamp", "time"),
    [(MS, NOON), (None, None), (MS * 1_000, None), (MS * 1_000_000, None), (-1, None)],
)
def test_a_time_that_cannot_be_is_none(
    stamp: int | None, time: datetime | None, tmp_path: Path
) -> None:
    row = reject(tmp_path, PLAN, stamp)
    assert (row["offset"], row["raw"], row["time"]) == (5, b"{", time)


@pytest.mark.parametrize(("source", "stored"), [("", None), ("orders", "orders")])
def test_a_job_of_several_sources_stores_which_of_them_refused(
    source: str, stored: str | None, tmp_path: Path
) -> None:
    row = reject(tmp_path, replace(PLAN, source=source))
    assert row["quarantine_source"] == stored
