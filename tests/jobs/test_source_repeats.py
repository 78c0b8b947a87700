"""What the driver counts and remembers of the order of a source."""

from __future__ import annotations

from typing import Any

import msgspec

from jobs.core.rows.source_order import SourceOrder, as_stamps
from jobs.edge.tasks.range_report import RangeReport
from jobs.running.outcome import Outcome
from schemas.table.epoch import EpochRow


def report(partition: int, start: int, *stamps: tuple[int, int]) -> RangeReport:
    order = SourceOrder()
    offsets = range(start, start + len(stamps))
    order.observe(
        as_stamps(offsets), as_stamps(i for i, _ in stamps), as_stamps(e for _, e in stamps)
    )
    return RangeReport(number=0, topic="shop", partition=partition, start=start, order=order)


def epoch_after(newest: EpochRow, *reports: RangeReport) -> EpochRow:
    """Return the next epoch row, as the table has it."""
    sent = [msgspec.json.decode(msgspec.json.encode(each), type=RangeReport) for each in reports]
    counters: dict[str, Any] = Outcome(sent).count_repeats(newest)
    text = msgspec.json.encode(counters)
    return msgspec.structs.replace(
        newest, epoch=newest.epoch + 1, counters=msgspec.json.decode(text)
    )


START = EpochRow(epoch=0, uuid="", generation=1, kind="start", committed_at=0, plan="", offsets={})


def test_a_repeat_is_noticed_over_ranges_epochs_and_epochs_without_data() -> None:
    first = epoch_after(
        START, report(1, 40, (11, 71), (12, 72)), report(0, 0, (10, 70)), report(1, 0, (9, 70))
    )
    assert (first.counts.source_repeats, first.counts.source_repeated) == (0, None)
    idle = epoch_after(first, report(2, 0))  # a partition without rows of the job
    again = epoch_after(idle, report(1, 42, (1, 71), (2, 72)), report(0, 1, (3, 73)))
    found = again.counts.source_repeated
    assert again.counts.source_repeats == 1
    assert found is not None
    assert (found.epoch, found.topic, found.partition, found.offset) == (3, "shop", 1, 42)
    # Later epochs remember it, and count those that follow.
    later = epoch_after(epoch_after(again), report(1, 44, (1, 72)), report(0, 2, (1, 73)))
    assert later.counts.source_repeats == 2
    assert later.counts.source_repeated == msgspec.structs.replace(found, count=3)
    # So does an operation that takes over the state.
    assert later.state_counters["source_repeated"]["count"] == 3
    assert later.state_counters["source_last"].keys() == {"shop/0", "shop/1"}
