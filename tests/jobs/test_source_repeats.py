"""What the driver counts and remembers of the order of a source."""

from __future__ import annotations

from typing import Any

import msgspec

from jobs.core.rows.source_order import OrderWatch, as_stamps
from jobs.edge.tasks.range_report import RangeReport
from jobs.running.outcome import Outcome
from schemas.table.epoch import EpochRow, TopicPartition


def report(newest: EpochRow, partition: int, start: int, *sent: tuple[int, int]) -> RangeReport:
    """Return the report of messages with these numbers and times; equal times, equal rows."""
    (memory,) = newest.counts.remember("", [TopicPartition("shop", partition)])
    watch = OrderWatch("canal-json", memory, start)
    watch.observe(
        as_stamps(range(start, start + len(sent))),
        as_stamps(number for number, _ in sent),
        as_stamps(time for _, time in sent),
        as_stamps(100 + len(str(number)) for number, _ in sent),
        lambda at: b'{"id":%d,"es":%d}' % sent[at],
    )
    order = watch.finish()
    return RangeReport(number=0, topic="shop", partition=partition, start=start, order=order)


def epoch_after(newest: EpochRow, *ranges: tuple[Any, ...]) -> EpochRow:
    """Return the next epoch row, as the table has it."""
    reports = [report(newest, *each) for each in ranges]
    sent = [msgspec.json.decode(msgspec.json.encode(each), type=RangeReport) for each in reports]
    counters: dict[str, Any] = Outcome(sent).count_repeats(newest)
    text = msgspec.json.encode(counters)
    return msgspec.structs.replace(
        newest, epoch=newest.epoch + 1, counters=msgspec.json.decode(text)
    )


START = EpochRow(epoch=0, uuid="", generation=1, kind="start", committed_at=0, plan="", offsets={})


def test_a_repeat_is_noticed_over_ranges_epochs_and_epochs_without_data() -> None:
    first = epoch_after(START, (1, 40, (11, 71), (12, 72)), (0, 0, (10, 70)), (1, 0, (9, 70)))
    assert (first.counts.source_repeats, first.counts.source_repeated) == (0, None)
    idle = epoch_after(first, (2, 0))  # a partition without rows of the job
    again = epoch_after(idle, (1, 42, (1, 71), (2, 72)), (0, 1, (3, 73)))
    found = again.counts.source_repeated
    assert again.counts.source_repeats == 1
    assert found is not None
    assert (found.epoch, found.topic, found.partition, found.offset) == (3, "shop", 1, 42)
    # Later epochs remember it, and count those that follow.
    later = epoch_after(epoch_after(again), (1, 44, (3, 74), (1, 74)), (0, 2, (1, 73)))
    assert later.counts.source_repeats == 2
    assert later.counts.source_repeated == msgspec.structs.replace(found, count=3)
    # So does an operation that takes over the state.
    assert later.state_counters["source_repeated"]["count"] == 3
    assert later.state_counters["source_memory"].keys() == {"shop/0", "shop/1"}
