"""The keys of a job spec that decoders follow."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.core.formats.debezium_fields import DEFAULT_MODES, Modes
from jobs.core.formats.mysql_values import BinaryForm
from jobs.core.values.json_values import TimestampFormat
from schemas.spec.event_formats import CsvEvents
from schemas.spec.source_rows import OnTruncate

DEFAULT_CSV = CsvEvents()


@dataclass(frozen=True, slots=True)
class FormatRules:
    """The keys of a job spec that concern the messages of its source."""

    format: str
    database: str | None = None
    table: str | None = None
    timestamp_format: TimestampFormat = "sql"
    missing_is_null: bool = False
    modes: Modes = DEFAULT_MODES
    primary_key: tuple[str, ...] = ()
    last_images: bool = False  # the job keeps the last image of each row
    paths: tuple[tuple[str, str], ...] = ()  # of json: column and path
    csv: CsvEvents = DEFAULT_CSV
    binary: BinaryForm = "latin1"  # of canal-json
    on_truncate: OnTruncate = "stop"
