"""The decode task: turn ranges of partitions into weighted rows, and a report of each range.

    planned range ─► Kafka ─► decode ─► consolidate ─► evaluate ─► parcels of rows, by fold task
                                 │                        │   └──► one parcel with the report (JSON)
                                 └► rejects ◄─────────────┘ ─► a quarantine file of this task

In a job with dedupe the rows are images. The task does not consolidate them but emits the changes
of each key that matter, with time and partition; __weight is the encoding of core.rows.dedupe.

A message on whose row an expression fails is refused by the view, or by the job if all views share
it: one query has no other view, and with dedupe all views share the images. Only the bytes of such
a message are read a second time; the task does not keep those of all messages.

A report is an ordinary row of the result, so the driver gets exactly one of each range, however
often Spark retried the task.
"""

from __future__ import annotations

import time
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np
import pyarrow as pa

from jobs.core.rows.consolidate import RUNNING_BITS, Booleans
from jobs.core.rows.dedupe import key_indexes, select_changes
from jobs.core.rows.truncations import Truncation
from jobs.core.values.change import RejectCode, Rejected
from jobs.edge.kafka.offset_ranges import OffsetRange
from jobs.edge.kafka.range_consumer import RangeTimedOut, RangeUnreadable, read_ranges
from jobs.edge.kafka.records import Records
from jobs.edge.process.failpoints import failpoint
from jobs.edge.rows.range_rows import RangeRows
from jobs.edge.rows.weighted_rows import Parcel, image_parcels, image_schema, report_parcel
from jobs.edge.tasks.body import name_writer
from jobs.edge.tasks.decode_inputs import DecodeInputs, ViewInputs
from jobs.edge.tasks.decode_views import ViewRows
from jobs.edge.tasks.file_ranges import read_file_ranges
from jobs.edge.tasks.range_reading import RangeReader, RangeTooLarge
from jobs.edge.tasks.range_report import RangeReport
from jobs.edge.tasks.reject_writer import RejectWriter, ViewRejects
from schemas.table.epoch import TopicPartition


@dataclass(frozen=True, slots=True)
class DecodeTask(DecodeInputs):
    """Decodes one source; a value, so that Spark can send it to the workers."""

    @property
    def refuses_for_all(self) -> bool:
        """Whether a message that one view refuses is refused by the job."""
        return bool(self.plan.primary_key) or self.joins or self._is_one_query

    @property
    def _is_one_query(self) -> bool:
        return [view.name for view in self.views] == [""]

    @property
    def source(self) -> str:
        """The name of its source, if the job has several."""
        return self.plan.source

    def decode_ranges(self, ordinals: Sequence[int]) -> Iterator[Parcel]:
        """Yield the rows and the report of each range, given by their numbers."""
        failpoint("decode_task")
        writer = name_writer("m")
        for together in self._rounds(ordinals):
            started = time.monotonic()
            runs = {
                self.ranges[ordinal]: RangeReader(self, ordinal, f"{writer}-{ordinal}")
                for ordinal in together
            }
            failed = self._read(runs)
            for run in runs.values():
                if failed is None:
                    yield from self._end_range(run, started)
                else:
                    yield _report_failure(failed, run)

    def _read(self, runs: Mapping[OffsetRange, RangeReader]) -> RangeReport | None:
        """Read and decode all records of some ranges; return the report of a failure."""
        copies = max((view.parcelling.copies for view in self.views), default=1)

        def take(planned: OffsetRange, records: Records) -> None:
            runs[planned].take(records)
            size = sum(run.signed_rows.bytes for run in runs.values())
            # A row is there for each grouping set and window.
            if size * copies > self.attempt.bytes_max:
                raise RangeTooLarge

        return self._read_each(tuple(runs), take)

    def _read_each(
        self, ranges: Sequence[OffsetRange], take: Callable[[OffsetRange, Records], None]
    ) -> RangeReport | None:
        """Read some ranges; return the report of a failure."""
        try:
            read = read_ranges(self.connection, ranges)
            if self.pieces is not None:
                read = read_file_ranges(self.pieces, ranges)
            for planned, records in read:
                take(planned, records)
        except RangeTooLarge:
            return RangeReport(number=0, too_large=True)
        except RangeUnreadable as problem:
            silent = isinstance(problem, RangeTimedOut)
            return RangeReport(number=0, unreadable=str(problem), silent=silent)
        return None

    def _end_range(self, run: RangeReader, started: float) -> Iterator[Parcel]:
        """Yield the rows and the report of a range, without the messages that are refused."""
        rows = run.rows()
        views = [] if rows is None else [ViewRows(each, run, rows) for each in self.views]
        refused = [view.find_refused() for view in views]
        if self.refuses_for_all:
            refused = [dict(ChainMap(*refused))] * len(views)
        if any(refused) and (failed := self._refuse(run, refused)) is not None:
            yield _report_failure(failed, run)
            return
        taken = [run.signed_rows.are_not_of(each) if each else None for each in refused]
        run.finish()
        run.report.seconds = round(time.monotonic() - started, 4)
        if rows is not None and self.plan.primary_key:
            yield from self._image_parcels(run, rows, taken[0])
        else:
            for view, own in zip(views, taken, strict=True):
                yield from view.parcels(own)
        if run.report.truncations:
            yield from self._truncation_parcels(run.report.truncations)
        yield report_parcel(msgspec.json.encode(run.report))

    def _refuse(self, run: RangeReader, refused: Sequence[Mapping[int, str]]) -> RangeReport | None:
        """Write the messages at these offsets to quarantine; return the report of a failure."""
        wanted, code = sorted(set[int]().union(*refused)), RejectCode.EXPRESSION
        if self.refuses_for_all:
            writers, refused = [run.rejects], refused[:1]
            code = code if self._is_one_query else RejectCode.SHARED
        else:
            writers = [self._make_writer(run, view) for view in self.views]
        left = set(wanted)

        def take(planned: OffsetRange, records: Records) -> None:
            for at in np.flatnonzero(np.isin(records.offsets, wanted)).tolist():
                record = records[at]
                left.discard(record.offset)
                for writer, reasons in zip(writers, refused, strict=True):
                    if (reason := reasons.get(record.offset)) is not None:
                        why = Rejected(reason, code=code)
                        writer.add(planned.topic_partition, why, record)

        again = replace(run.range, start=wanted[0], end=wanted[-1] + 1)
        if (failed := self._read_each((again,), take)) is not None:
            return failed
        if left:
            gone = f"{again}: compaction has removed offset {min(left)} since it was read"
            return RangeReport(number=0, unreadable=gone, silent=True)
        if self.refuses_for_all:
            run.report.decoded -= len(wanted)
            run.report.rows -= int(np.count_nonzero(~run.signed_rows.are_not_of(wanted)))
            return None
        for view, writer in zip(self.views, writers, strict=True):
            if writer.count:
                writer.write()
                run.report.refused.append(
                    ViewRejects(view.number, writer.count, writer.files, writer.first or "")
                )
        return None

    def _make_writer(self, run: RangeReader, view: ViewInputs) -> RejectWriter:
        """Return the writer of what a view refuses; at its root the range may have another."""
        own = replace(self, plan=view.plan, root=view.root)
        return RejectWriter(own, f"{run.writer}-v{view.number}")

    def _rounds(self, ordinals: Iterable[int]) -> Iterator[list[int]]:
        """Yield the ranges of a task in parts of different partitions, to read them together."""
        together: dict[TopicPartition, int] = {}
        for ordinal in ordinals:
            partition = self.ranges[ordinal].topic_partition
            if partition in together:
                yield list(together.values())
                together = {}
            together[partition] = ordinal
        if together:
            yield list(together.values())

    def _image_parcels(
        self, run: RangeReader, rows: RangeRows, taken: Booleans | None
    ) -> Iterator[Parcel]:
        """Yield the changes of a range that matter, by the buckets of their keys."""
        places = np.flatnonzero(np.ones(len(rows.signs), np.bool_) if taken is None else taken)
        rows = rows if taken is None else rows.take(places)
        keys = key_indexes(self.plan)
        messages = run.signed_rows.offsets[places] if run.keys_change else None
        numbers = rows.number(keys)
        indexes, weights = select_changes(numbers, rows.signs, messages)
        types = [column.type for column in self.plan.primary_key]
        count = len(indexes)
        times = pa.nulls(count, pa.int64())
        if run.keys_change:
            times = run.signed_rows.times.take(pa.array(places[indexes]))
        arrays = [
            *(column.take(pa.array(indexes)) for column in rows.columns),
            pa.array((run.number << RUNNING_BITS) + places[indexes]),
            pa.array(weights),
            times,
            pa.repeat(pa.scalar(run.partition_number, pa.int64()), count),
            pa.array(rows.find_buckets(keys, types, self.key_buckets)[numbers[indexes]]),
        ]
        images = pa.RecordBatch.from_arrays(arrays, schema=image_schema(self.plan.image))
        yield from image_parcels(images, self.placement, self.images)

    def _truncation_parcels(self, found: Sequence[Truncation]) -> Iterator[Parcel]:
        """Yield TRUNCATEs for each task, with the buckets of keys that it has."""
        for target, buckets in enumerate(self.placement.divide(range(self.key_buckets))):
            if buckets:
                content = msgspec.json.encode((buckets, found))
                yield Parcel(~self.images, target, 0, content)


def _report_failure(failed: RangeReport, run: RangeReader) -> Parcel:
    return report_parcel(msgspec.json.encode(msgspec.structs.replace(failed, number=run.number)))


@dataclass(frozen=True, slots=True)
class SourcesDecode:
    """Decodes all sources of a job: ranges' numbers in, parcels out."""

    tasks: tuple[DecodeTask, ...]  # one for each source; all have all ranges

    def run(self, given: Iterable[int]) -> Iterator[Parcel]:
        """Yield the rows and the report of each range, given by their numbers."""
        ordinals = list(given)
        for task in self.tasks:
            own = [each for each in ordinals if task.ranges[each].source == task.source]
            if own:
                yield from task.decode_ranges(own)
