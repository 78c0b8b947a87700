"""The report of a range: what a decode task counts and finds, for the driver."""

from __future__ import annotations

import msgspec

from jobs.core.rows.source_order import SourceOrder
from jobs.core.rows.truncations import Truncation
from jobs.edge.table.file_writer import AddedFile
from jobs.edge.tasks.reject_writer import ViewRejects
from schemas.table.epoch import PartitionSnapshot


class RangeReport(msgspec.Struct, kw_only=True, tag="range"):
    """The report of one range; the driver requires exactly one of each planned range."""

    number: int  # of the range, among those of the epoch
    source: str = ""  # its name, if the job has several
    topic: str | None = None  # None: the range had no records
    partition: int = -1
    start: int = -1
    read: int = 0
    decoded: int = 0
    skipped: int = 0
    filtered: int = 0
    quarantined: int = 0
    scanned: int = 0  # decoded and filtered by the scanner
    rows: int = 0  # signed rows
    damaged_texts: int = 0  # of these rows
    shipped: dict[int, int] = {}  # weighted rows, by the number of who reads them
    unreadable: str | None = None  # why the range could not be read
    silent: bool = False  # unreadable, but a later attempt may succeed
    too_large: bool = False  # its rows have more bytes than a task may hold; none was emitted
    appended_ms: int | None = None  # when Kafka got the first record
    event_time_max: int | None = None
    generator: PartitionSnapshot | None = None  # its state, if it saw the rows one by one
    event_times_missing: int = 0
    order: SourceOrder | None = None  # of messages with the time of their source
    gone: str | None = None  # a declared column that the source has dropped
    truncated: str | None = None  # why a TRUNCATE stops the job
    truncations: list[Truncation] = []  # that the job applies
    first_reject: str | None = None
    quarantine: list[AddedFile] = []
    refused: list[ViewRejects] = []
    seconds: float = 0.0  # of reading and decoding
