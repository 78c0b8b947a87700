"""The source formats by name, and their decoders.

canal-json       signed rows; an update has only the changed columns of the old row
maxwell-json     the same, with one row in each message
debezium-json    signed rows; an update has both rows
debezium-avro    the same in Avro, with schemas of a registry
avro             plain rows in Avro: each message is an insert
debezium-protobuf, protobuf    both in Protobuf
changelog-json   one signed row in each record; retally publishes it
csv, json        plain events: each message is an insert
upsert-json      the last image of a row; the key of the record identifies the row
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import get_args

from jobs.core.formats.avro import AvroDecoder
from jobs.core.formats.canal import CanalDecoder
from jobs.core.formats.changelog import ChangelogDecoder
from jobs.core.formats.csv_events import CsvDecoder
from jobs.core.formats.debezium import DebeziumDecoder
from jobs.core.formats.debezium_fields import DEFAULT_MODES, Modes
from jobs.core.formats.frame import DecoderFrame, FormatRules
from jobs.core.formats.json_events import JsonEventDecoder
from jobs.core.formats.maxwell import MaxwellDecoder
from jobs.core.formats.metadata import MetadataDecoder, without_metadata
from jobs.core.formats.mysql_values import text_converter
from jobs.core.formats.protobuf.decoder import ProtobufDecoder
from jobs.core.formats.registered import FindSchema, RegisteredDecoder
from jobs.core.formats.upsert import UpsertDecoder
from jobs.core.plan.tree import Column
from jobs.core.values.json_values import Converter
from schemas import limits
from schemas.spec.event_formats import CsvEvents, JsonEvents
from schemas.spec.job import JobSpec
from schemas.spec.source import FORMATS_WITH_KEY_CHANGES, FORMATS_WITHOUT_TABLES, SourceFormat
from schemas.types.sql_types import SqlType

FORMATS = get_args(SourceFormat)
_DECODERS: Mapping[str, type[DecoderFrame]] = {
    "canal-json": CanalDecoder,
    "maxwell-json": MaxwellDecoder,
    "debezium-json": DebeziumDecoder,
    "debezium-avro": AvroDecoder,
    "avro": AvroDecoder,
    "debezium-protobuf": ProtobufDecoder,
    "protobuf": ProtobufDecoder,
    "changelog-json": ChangelogDecoder,
    "csv": CsvDecoder,
    "json": JsonEventDecoder,
    "upsert-json": UpsertDecoder,
}
# Turns a Kafka record into its changes; never raises for invalid values.
MessageDecoder = DecoderFrame | MetadataDecoder


@dataclass(frozen=True, slots=True)
class MessageRules(FormatRules):
    """The keys of a job spec that concern its messages, and the decoder that follows them."""

    @classmethod
    def of(cls, spec: JobSpec) -> MessageRules:
        source = spec.source
        json_events, csv = source.json_events or JsonEvents(), source.csv_events or CsvEvents()
        nulls_omitted = source.format == "json" and json_events.ignore_null_fields
        return cls(
            source.format,
            source.database,
            source.table,
            spec.timestamp_format,
            missing_is_null=spec.on_schema_change == "continue" or nulls_omitted,
            modes=DEFAULT_MODES
            if source.debezium is None
            else Modes(source.debezium.decimal_handling_mode, source.debezium.time_precision_mode),
            primary_key=(spec.primary_key or ()) if spec.dedupe else (),
            last_images=spec.dedupe is not None,
            paths=tuple(json_events.paths.items()),
            # The plan may have the columns in another order.
            csv=csv.model_copy(update={"fields": csv.fields or tuple(spec.columns)}),
            binary="latin1" if source.canal is None else source.canal.binary,
            on_truncate=spec.on_truncate,
        )

    def text_converter(self) -> Callable[[SqlType], Converter]:
        """Return a function from types to converters of texts, as the source writes them."""
        binary = self.binary if self.format == "canal-json" else "base64"
        return text_converter(self.timestamp_format, binary)

    @property
    def keys_change(self) -> bool:
        """Whether an update may change a primary key."""
        return self.format in FORMATS_WITH_KEY_CHANGES

    def decoder(
        self,
        columns: tuple[Column, ...],
        used: tuple[Column, ...],
        *,
        bytes_max: int = limits.MESSAGE_BYTES_MAX,
        find_schema: FindSchema | None = None,  # of the source's schema registry
    ) -> MessageDecoder:
        """Return the decoder of the source; raise ValueError for rules that the format lacks.

        `used` may have metadata of the message, which is not among the declared columns."""
        if self.format not in _DECODERS:
            raise ValueError(f"unknown format {self.format!r}; use one of {', '.join(FORMATS)}")
        filters = self.database, self.table
        if self.format in FORMATS_WITHOUT_TABLES and filters != (None, None):
            raise ValueError(f"{self.format} has no database or table; remove the filters")
        if self.format == "upsert-json" and not self.primary_key:
            raise ValueError("upsert-json needs a primary key; add primary_key and dedupe: pk")
        own = without_metadata(used, self.format)
        columns = without_metadata(columns, self.format)
        kind, of = _DECODERS[self.format], (self, columns, own, bytes_max)
        rows = kind(*of, find_schema) if issubclass(kind, RegisteredDecoder) else kind(*of)
        return rows if own == used else MetadataDecoder(rows, self.format, used)
