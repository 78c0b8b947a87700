"""The options of a table (WITH) as the sections `source` and `sink` of a spec."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from jobs.migrating.connections import is_client_property
from jobs.migrating.problems import Note, NotTakenError
from jobs.migrating.settings import duration, duration_or_never, is_true
from jobs.migrating.statements import Option, Table
from schemas.spec.values import instant_text
from schemas.types.json_types import JsonObject

# Flink's names with a schema registry, and ours.
_OF_REGISTRY = {"avro-confluent": "avro", "debezium-avro-confluent": "debezium-avro"}
SOURCE_FORMATS = ("canal-json", "debezium-json", "maxwell-json", "json", "csv", *_OF_REGISTRY)
_SINK_FORMATS = ("canal-json", "debezium-json", "debezium-avro-confluent")
_WITHOUT_SINK = ("print", "blackhole")
_OFFSETS = re.compile(r"partition:(\d+),offset:(\d+)")
_TIMES = {"SQL": "sql", "ISO-8601": "iso"}
_KAFKA = "retally reads and writes topics of Kafka"
_COMMITTED = (
    "Flink starts at the group's committed offsets (group-offsets is its default), a job at "
    "`start`; give a timestamp or offsets for the same rows"
)


class TableOptions:
    """The options of one table; what nobody takes is a problem."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self._left = dict(table.options)
        self.format = ""

    def take(self, *keys: str) -> Option | None:
        """Return the first of these options that is there."""
        found = [self._left.pop(key) for key in keys if key in self._left]
        return found[0] if found else None

    def need(self, key: str) -> Option:
        option = self.take(key)
        if option is None:
            raise NotTakenError(f"the option {key!r} is missing", self.table.offset)
        return option

    def of_format(self, name: str) -> Option | None:
        """Return an option of the format, whose key begins with its name."""
        return self.take(f"{self.format}.{name}", f"value.{self.format}.{name}")

    def take_registry(self) -> Mapping[str, Option]:
        """Return the options of the format's schema registry, without their prefixes."""
        found: dict[str, Option] = {}
        for prefix in (f"value.{self.format}.", f"{self.format}.", f"key.{self.format}."):
            for key in [each for each in self._left if each.startswith(prefix)]:
                name = key.removeprefix(prefix).removeprefix("schema-registry.")
                found.setdefault(name, self._left.pop(key))
        return found

    def take_connection(self) -> Mapping[str, Option]:
        found = {key: option for key, option in self._left.items() if is_client_property(key)}
        for key in found:
            del self._left[key]
        return found

    def finish(self) -> list[Note]:
        """Return a note for each client property that is left; refuse all other options."""
        notes = []
        for key, option in self._left.items():
            if not key.startswith("properties."):
                raise NotTakenError(f"the option {key!r} has no counterpart", option.offset)
            name = key.removeprefix("properties.")
            notes.append(
                Note(f"{name}: a setting of Flink's client, left out", False, option.offset)
            )
        return notes


@dataclass(slots=True)
class Endpoint:
    """A source or a sink: its section, notes by key, and its connection's options."""

    section: JsonObject = field(default_factory=dict)
    notes: dict[str, list[Note]] = field(default_factory=dict)
    connection: Mapping[str, Option] = field(default_factory=dict)
    registry: Mapping[str, Option] = field(default_factory=dict)  # of the messages' schemas
    top: JsonObject = field(default_factory=dict)  # keys of the spec itself
    watermark: JsonObject = field(default_factory=dict)

    def note(self, key: str, text: str, offset: int, *, differs: bool = False) -> None:
        self.notes.setdefault(key, []).append(Note(text, differs, offset))


def read_source(table: Table) -> Endpoint:
    options, source = TableOptions(table), Endpoint()
    connector = options.need("connector")
    if connector.value == "filesystem":
        return _read_files(options, source)
    if connector.value not in ("kafka", "upsert-kafka"):
        reason = f"the connector {connector.value!r} has no counterpart: {_KAFKA}"
        raise NotTakenError(reason, connector.offset)
    upsert = connector.value == "upsert-kafka"
    topic = options.take("topic")
    if topic is None:
        pattern = options.take("topic-pattern")
        at = pattern.offset if pattern else table.offset
        raise NotTakenError("name the topics in the option 'topic'", at)
    topics = [each.strip() for each in topic.value.split(";")]
    source.section["topic" if len(topics) == 1 else "topics"] = (
        topics[0] if topics[1:] == [] else topics
    )
    source.connection = options.take_connection()
    if upsert:
        _read_upsert(options, source)
    else:
        _read_format(options, source)
        _read_start(options, source)
    group = options.take("properties.group.id")
    if group is not None:
        source.section["group"] = group.value
        source.note("group", "the job reports offsets here, and never reads them", group.offset)
    isolation = options.take("properties.isolation.level")
    if isolation is not None and isolation.value != "read_committed":
        source.note("topic", "only committed records are read", isolation.offset)
    _read_watermark(options, source)
    _skip_of_sink(options)
    for note in options.finish():
        source.notes.setdefault("topic", []).append(note)
    return source


def _read_files(options: TableOptions, source: Endpoint) -> Endpoint:
    path, every = options.need("path"), options.take("source.monitor-interval")
    known = re.sub(r"^s3[an]://", "s3://", re.sub(r"^file:(//)?", "", path.value))
    source.section["files"] = {"path": known} | ({"every": duration(every)} if every else {})
    once = "" if every else "; Flink ends after the files that are there (run --until-caught-up)"
    text = f"without the directories below it, and only where RETALLY_FILES allows it{once}"
    source.note("files", text, path.offset, differs=True)
    _read_format(options, source)
    source.section["start"] = "earliest"
    _read_watermark(options, source)
    _skip_of_sink(options)
    options.finish()
    return source


def _read_upsert(options: TableOptions, source: Endpoint) -> None:
    table = options.table
    for key in ("key.format", "value.format"):
        option = options.need(key)
        if option.value != "json":
            raise NotTakenError(f"{key} must be json, not {option.value!r}", option.offset)
    if not table.primary_key:
        raise NotTakenError(f"{table.name} needs a PRIMARY KEY", table.offset)
    options.format = "json"
    source.section |= {"format": "upsert-json", "start": "earliest"}
    source.top |= {"primary_key": list(table.primary_key), "dedupe": "pk"}
    _read_format_options(options, source)
    fields = options.take("value.fields-include")
    if fields is not None and fields.value.upper() == "EXCEPT_KEY":
        raise NotTakenError("the value must have the columns of the key", fields.offset)


def _read_format(options: TableOptions, source: Endpoint) -> None:
    given = options.take("value.format", "format")
    if given is None:
        raise NotTakenError("the option 'format' is missing", options.table.offset)
    if given.value not in SOURCE_FORMATS:
        reason = f"the format {given.value!r} has no counterpart; known are "
        raise NotTakenError(reason + ", ".join(SOURCE_FORMATS), given.offset)
    options.format = given.value
    source.section["format"] = _OF_REGISTRY.get(given.value, given.value)
    if given.value in _OF_REGISTRY:
        source.registry = options.take_registry()
    _read_format_options(options, source)
    key_fields = options.take("key.fields")
    options.take("key.format")
    include = options.take("value.fields-include")
    if include is not None and include.value.upper() == "EXCEPT_KEY":
        reason = "columns of a record's key cannot be read; the value must have them"
        raise NotTakenError(reason, include.offset)
    if key_fields is not None:
        source.note(
            "format", "columns are read from the value, not from the key", key_fields.offset
        )


def _read_format_options(options: TableOptions, source: Endpoint) -> None:
    ignore = options.of_format("ignore-parse-errors")
    ignored = ignore is not None and is_true(ignore)
    in_flink = (
        "Flink drops it, or reads NULLs" if ignored else "with fail the job stops, as in Flink"
    )
    source.top["on_error"] = "quarantine"
    text = f"a bad message is kept, with the reason; {in_flink}"
    source.note("/on_error", text, ignore.offset if ignore else options.table.offset)
    stamp = options.of_format("timestamp-format.standard")
    if stamp is not None:
        if stamp.value not in _TIMES:
            raise NotTakenError("timestamp-format.standard is SQL or ISO-8601", stamp.offset)
        if stamp.value != "SQL":
            source.top["timestamp_format"] = _TIMES[stamp.value]
    if options.format == "canal-json":
        for key in ("database", "table"):
            pattern = options.of_format(f"{key}.include")
            if pattern is not None:
                source.section[key] = pattern.value
    if options.format == "debezium-json":
        options.of_format("schema-include")  # a schema in the message is recognized
    if options.format == "json":
        missing = options.of_format("fail-on-missing-field")
        if missing is not None and is_true(missing):
            source.section["json"] = {"ignore_null_fields": False}
        options.of_format("decode.json-parser.enabled")
    if options.format == "csv":
        _read_csv(options, source)


def _read_csv(options: TableOptions, source: Endpoint) -> None:
    section: JsonObject = {
        "fields": [
            each.name for each in options.table.columns if not each.expression and not each.metadata
        ]
    }
    names = {
        "field-delimiter": "delimiter",
        "quote-character": "quote",
        "escape-character": "escape",
        "null-literal": "null_literal",
    }
    for theirs, ours in names.items():
        option = options.of_format(theirs)
        if option is not None:
            section[ours] = re.sub(
                r"\\(u[0-9A-Fa-f]{4}|.)", lambda found: _unescape(found[1]), option.value
            )
    disabled = options.of_format("disable-quote-character")
    if disabled is not None and is_true(disabled):
        section["quote"] = ""
    comments = options.of_format("allow-comments")
    if comments is not None and is_true(comments):
        raise NotTakenError("lines of comments have no counterpart", comments.offset)
    options.of_format("array-element-delimiter")
    source.section["csv"] = section


def _unescape(text: str) -> str:
    if len(text) > 1:
        return chr(int(text[1:], 16))
    return {"t": "\t", "n": "\n", "r": "\r"}.get(text, text)


def _read_start(options: TableOptions, source: Endpoint) -> None:
    mode = options.take("scan.startup.mode")
    reset = options.take("properties.auto.offset.reset")
    word = mode.value if mode else "group-offsets"
    at = mode.offset if mode else options.table.offset
    match word:
        case "earliest-offset" | "latest-offset":
            source.section["start"] = word.removesuffix("-offset")
        case "timestamp":
            stamp = options.need("scan.startup.timestamp-millis")
            if not stamp.value.isdigit():
                raise NotTakenError("scan.startup.timestamp-millis is a number", stamp.offset)
            source.section["start"] = {"timestamp": instant_text(int(stamp.value))}
        case "specific-offsets":
            given = options.need("scan.startup.specific-offsets")
            offsets = {found[1]: int(found[2]) for found in _OFFSETS.finditer(given.value)}
            if not offsets:
                reason = "write it like partition:0,offset:42;partition:1,offset:300"
                raise NotTakenError(reason, given.offset)
            source.section["start"] = {"offsets": offsets}
        case "group-offsets":
            latest = reset is not None and reset.value == "latest"
            source.section["start"] = "latest" if latest else "earliest"
            # With a reset a group without offsets starts there, in Flink too.
            source.note("start", _COMMITTED, at, differs=reset is None)
        case _:
            raise NotTakenError(f"scan.startup.mode {word!r} is not known", at)
    bounded = options.take("scan.bounded.mode")
    if bounded is not None and bounded.value != "unbounded":
        text = "Flink ends there; run it with --until-caught-up to end at the topic's end"
        source.note("start", text, bounded.offset)
    for key in ("timestamp-millis", "specific-offsets"):
        options.take(f"scan.bounded.{key}")
    options.take("scan.topic-partition-discovery.interval")
    options.take("scan.parallelism")


def _read_watermark(options: TableOptions, source: Endpoint) -> None:
    idle = options.take("scan.watermark.idle-timeout")
    if idle is not None:
        source.watermark["idle_after"] = duration_or_never(idle)
    group = options.take("scan.watermark.alignment.group")
    drift = options.take("scan.watermark.alignment.max-drift")
    every = options.take("scan.watermark.alignment.update-interval")
    if group is not None and drift is not None:
        align = {"group": group.value, "max_drift": duration(drift)}
        source.watermark["align"] = align | ({"every": duration(every)} if every else {})
    strategy = options.take("scan.watermark.emit.strategy")
    if strategy is not None and strategy.value == "on-event":
        source.watermark["within_epoch"] = True
    options.take("scan.watermark.emit.on-event.gap")


def _skip_of_sink(options: TableOptions) -> None:
    """Skip options that matter only where the table is written."""
    for key in tuple(options.table.options):
        if key.startswith("sink.") or ".encode." in key or ".map-null-key." in key:
            options.take(key)


# --- sinks --------------------------------------------------------------------------------------


def read_sink(table: Table, *, windows: bool) -> Endpoint | None:
    """Return the sink that a table is; None if its rows go nowhere but to a screen."""
    options, sink = TableOptions(table), Endpoint()
    connector = options.need("connector")
    if connector.value in _WITHOUT_SINK:
        return None
    if connector.value not in ("kafka", "upsert-kafka"):
        reason = (
            f"the connector {connector.value!r} has no counterpart: {_KAFKA}; Kafka Connect takes "
            "the rows from a topic, and any engine that reads Delta from the job's table"
        )
        raise NotTakenError(reason, connector.offset)
    topic = options.need("topic")
    sink.section["topic"] = topic.value
    sink.connection = options.take_connection()
    _read_sink_format(options, sink, upsert=connector.value == "upsert-kafka", windows=windows)
    parallelism = options.take("sink.parallelism")
    if parallelism is not None and parallelism.value.isdigit():
        sink.section["partitions"] = int(parallelism.value)
        sink.note("partitions", "of the topic, if the job creates it", parallelism.offset)
    delivery = options.take("sink.delivery-guarantee")
    if delivery is not None and delivery.value in ("exactly-once", "at-least-once"):
        sink.section["delivery"] = delivery.value.replace("-", "_")
    prefix = options.take("sink.transactional-id-prefix")
    if prefix is not None:
        text = "transactional ids are retally-<job>-<table id>"
        sink.note("topic", text, prefix.offset)
    partitioner = options.take("sink.partitioner")
    if partitioner is not None:
        sink.note("topic", "the partition is the hash of the key, as Java's", partitioner.offset)
    for key in tuple(table.options):
        if key.startswith(("scan.", "sink.buffer-flush.", "properties.")) or key in _OF_SOURCE:
            options.take(key)
    options.finish()
    return sink


_OF_SOURCE = ("sink.semantic", "key.fields-prefix")


def _read_sink_registry(options: TableOptions, sink: Endpoint) -> None:
    """Take the schema registry; subjects are named after the topic, as Flink does by default."""
    sink.registry = options.take_registry()
    subject = sink.registry.get("subject")
    if subject is not None and subject.value != f"{sink.section['topic']}-value":
        text = f"the subject is {sink.section['topic']}-value; in Flink {subject.value}"
        sink.note("format", text, subject.offset, differs=True)


def _read_sink_format(
    options: TableOptions, sink: Endpoint, *, upsert: bool, windows: bool
) -> None:
    given = options.take("value.format", "format")
    if given is None:
        raise NotTakenError("the option 'value.format' is missing", options.table.offset)
    options.format = given.value
    plain = {"json": "upsert-json", "avro-confluent": "upsert-avro"}.get(given.value)
    if given.value in _OF_REGISTRY:
        _read_sink_registry(options, sink)
    if plain is not None and (upsert or windows):
        sink.section["format"] = plain
        if not upsert:
            text = f"the rows of Flink's {given.value}, with the group as the key"
            sink.note("format", text, given.offset)
    elif not upsert and given.value in _SINK_FORMATS:
        sink.section["format"] = _OF_REGISTRY.get(given.value, given.value)
        text = (
            "an UPDATE is one message with old; Flink writes DELETE and INSERT"
            if given.value == "canal-json"
            else "an update is u with before and after; Flink writes d and c"
        )
        sink.note("format", text, given.offset)
    elif plain is not None:
        reason = (
            f"a changing result cannot go to the format {given.value}, in Flink neither; use "
            "upsert-kafka, canal-json or debezium-json"
        )
        raise NotTakenError(reason, given.offset)
    else:
        known = "json and avro-confluent"
        if not upsert:
            known = f"{', '.join(_SINK_FORMATS)}; {known} for windows"
        reason = f"the format {given.value!r} has no counterpart in a sink; known are {known}"
        raise NotTakenError(reason, given.offset)
    key_format = options.take("key.format")
    ours = "avro-confluent" if given.value in _OF_REGISTRY else "json"
    if key_format is not None and key_format.value != ours:
        kind = "a record of Avro" if given.value in _OF_REGISTRY else "a JSON object"
        text = f"the key is {kind}; in Flink {key_format.value}"
        sink.note("format", text, key_format.offset, differs=True)
    include = options.take("value.fields-include")
    if include is not None and include.value.upper() == "EXCEPT_KEY":
        text = "the value has the columns of the key too"
        sink.note("format", text, include.offset, differs=True)
    options.take("key.fields")
    stamp = options.of_format("timestamp-format.standard")
    if stamp is not None and stamp.value == "ISO-8601":
        text = "times are written as in SQL, 2026-01-31 12:00:00"
        sink.note("format", text, stamp.offset, differs=True)
    nulls = options.of_format("encode.ignore-null-fields")
    if nulls is not None and is_true(nulls):
        sink.note("format", "fields that are NULL are written", nulls.offset, differs=True)
    for key in tuple(options.table.options):
        if key.startswith((f"{options.format}.", "value.", "key.")):
            options.take(key)
