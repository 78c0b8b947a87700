"""The epoch row: rows of older tables are read, and times of three clocks give no negative time."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.table.epoch import EpochRow
from tests.support.epoch_rows import epoch_row


def row(**counters: Any) -> EpochRow:
    return epoch_row(1, committed_at=5_000_000, counters=counters)


def test_a_row_of_an_older_table_has_no_latency() -> None:
    old = row(read=3, published=0)
    assert (old.counts.appended_ms, old.commit_latency_ms) == (None, None)
    assert old.counts.publish_latencies_ms == {}


@pytest.mark.parametrize(("appended_ms", "latency_ms"), [(4_200, 800), (5_000, 0), (5_001, 0)])
def test_the_commit_latency_begins_with_the_append_of_the_oldest_record(
    appended_ms: int, latency_ms: int
) -> None:
    assert row(appended_ms=appended_ms).commit_latency_ms == latency_ms
