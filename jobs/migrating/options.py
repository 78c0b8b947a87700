"""The options of a table (WITH) as the sections `source` and `sink` of a spec."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from jobs.core.sql.dialect import Refusal
from jobs.migrating.connections import is_client_property
from jobs.migrating.problems import Note
from jobs.migrating.settings import duration, duration_or_never, is_true
from jobs.migrating.statements import Option, Table
from schemas.spec.values import instant_text
from schemas.types.json_types import JsonObject

# Flink's names with a schema registry, and ours.
_OF_REGISTRY = {"avro-confluent": "avro", "debezium-avro-confluent": "debezium-avro"}
_SOURCE_FORMATS = ("canal-json", "debezium-json", "maxwell-json", "json", "csv", *_OF_REGISTRY)
_SINK_FORMATS = ("canal-json", "debezium-json", "debezium-avro-confluent")
_WITHOUT_SINK = ("print", "blackhole")
_OFFSETS = re.compile(r"partition:(\d+),offset:(\d+)")
_TIMES = {"SQL": "sql", "ISO-8601": "iso"}
_CSV = {
    "field-delimiter": "delimiter",
    "quote-character": "quote",
    "escape-character": "escape",
    "null-literal": "null_literal",
}
_KAFKA = "retally reads and writes topics of Kafka"
_COMMITTED = (
    "Flink starts at the group's committed offsets (group-offsets is its default), a job at "
    "`start`; give a timestamp or offsets for the same rows"
)
# Options of the JSON formats that have no effect in a sink, or none here.
_OF_JSON = (
    "ignore-parse-errors",
    "fail-on-missing-field",
    "decode.json-parser.enabled",
    "schema-include",
    "database.include",
    "table.include",
    "map-null-key.mode",
    "map-null-key.literal",
    "encode.decimal-as-plain-number",
    "encode.ignore-null-fields",
    "timestamp-format.standard",
)
_OF_SOURCE = ("scan.", "sink.buffer-flush.", "sink.semantic", "key.fields-prefix")


@dataclass(slots=True)
class Endpoint:
    """A source or a sink from the options of a table; an option that nobody takes is refused."""

    table: Table
    section: JsonObject = field(default_factory=dict)
    notes: dict[str, list[Note]] = field(default_factory=dict)  # by key of the section
    connection: Mapping[str, Option] = field(default_factory=dict)
    registry: Mapping[str, Option] = field(default_factory=dict)  # of the messages' schemas
    top: JsonObject = field(default_factory=dict)  # keys of the spec itself
    watermark: JsonObject = field(default_factory=dict)
    format: str = ""
    key: tuple[str, Sequence[str], int] = ("key.fields", (), 0)  # of a sink's records, if given
    _left: dict[str, Option] = field(init=False)

    def __post_init__(self) -> None:
        self._left = dict(self.table.options)

    def note(self, key: str, text: str, offset: int, *, differs: bool = False) -> None:
        self.notes.setdefault(key, []).append(Note(text, differs, offset))

    def take(self, *keys: str) -> Option | None:
        """Return the first of these options that is there."""
        found = [self._left.pop(key) for key in keys if key in self._left]
        return found[0] if found else None

    def need(self, *keys: str) -> Option:
        option = self.take(*keys)
        if option is None:
            raise Refusal(f"the option {keys[-1]!r} is missing", self.table.offset)
        return option

    def of_format(self, name: str) -> Option | None:
        """Return an option of the format, whose key begins with its name."""
        return self.take(f"{self.format}.{name}", f"value.{self.format}.{name}")

    def is_on(self, name: str) -> bool:
        """Return whether an option of the format is there and true."""
        option = self.of_format(name)
        return option is not None and is_true(option)

    def skip(self, *starts: str) -> None:
        for key in [each for each in self._left if each.startswith(starts)]:
            del self._left[key]

    def take_registry(self) -> None:
        """Take the options of the format's schema registry, without their prefixes."""
        found: dict[str, Option] = {}
        for prefix in (f"value.{self.format}.", f"{self.format}.", f"key.{self.format}."):
            for key in [each for each in self._left if each.startswith(prefix)]:
                name = key.removeprefix(prefix).removeprefix("schema-registry.")
                found.setdefault(name, self._left.pop(key))
        self.registry = found

    def take_connection(self) -> None:
        keys = [key for key in self._left if is_client_property(key)]
        self.connection = {key: self._left.pop(key) for key in keys}

    def refuse_columns_of_key(self, reason: str) -> None:
        option = self.take("value.fields-include")
        if option is not None and option.value.upper() == "EXCEPT_KEY":
            raise Refusal(reason, option.offset)

    def finish(self) -> None:
        """Note each client property that is left; refuse all other options."""
        for key, option in self._left.items():
            if not key.startswith("properties."):
                raise Refusal(f"the option {key!r} has no counterpart", option.offset)
            name = key.removeprefix("properties.")
            self.note("topic", f"{name}: a setting of Flink's client, left out", option.offset)


# --- sources ------------------------------------------------------------------------------------


def read_source(table: Table) -> Endpoint:
    source = Endpoint(table)
    connector = source.need("connector")
    if connector.value == "filesystem":
        _read_files(source)
    elif connector.value in ("kafka", "upsert-kafka"):
        _read_topic(source, upsert=connector.value == "upsert-kafka")
    else:
        reason = f"the connector {connector.value!r} has no counterpart: {_KAFKA}"
        raise Refusal(reason, connector.offset)
    _read_watermark(source)
    for key in tuple(table.options):  # what matters only where the table is written
        if key.startswith("sink.") or ".encode." in key or ".map-null-key." in key:
            source.take(key)
    source.finish()
    return source


def _read_topic(source: Endpoint, *, upsert: bool) -> None:
    topic = source.take("topic")
    if topic is None:
        pattern = source.take("topic-pattern")
        at = pattern.offset if pattern else source.table.offset
        raise Refusal("name the topics in the option 'topic'", at)
    topics = [each.strip() for each in topic.value.split(";")]
    source.section |= {"topics": topics} if len(topics) > 1 else {"topic": topics[0]}
    source.take_connection()
    if upsert:
        _read_upsert(source)
    else:
        _read_format(source)
        _read_start(source)
    if (group := source.take("properties.group.id")) is not None:
        source.section["group"] = group.value
        source.note("group", "the job reports offsets here, and never reads them", group.offset)
    isolation = source.take("properties.isolation.level")
    if isolation is not None and isolation.value != "read_committed":
        source.note("topic", "only committed records are read", isolation.offset)


def _read_files(source: Endpoint) -> None:
    path, every = source.need("path"), source.take("source.monitor-interval")
    known = re.sub(r"^s3[an]://", "s3://", re.sub(r"^file:(//)?", "", path.value))
    source.section["files"] = {"path": known} | ({"every": duration(every)} if every else {})
    once = "" if every else "; Flink ends after the files that are there (run --until-caught-up)"
    text = f"without the directories below it, and only where RETALLY_FILES allows it{once}"
    source.note("files", text, path.offset, differs=True)
    _read_format(source)
    source.section["start"] = "earliest"


def _read_upsert(source: Endpoint) -> None:
    table = source.table
    for key in ("key.format", "value.format"):
        option = source.need(key)
        if option.value != "json":
            raise Refusal(f"{key} must be json, not {option.value!r}", option.offset)
    if not table.primary_key:
        raise Refusal(f"{table.name} needs a PRIMARY KEY", table.offset)
    source.format = "json"
    source.section |= {"format": "upsert-json", "start": "earliest"}
    source.top |= {"primary_key": list(table.primary_key), "dedupe": "pk"}
    _read_format_options(source)
    source.refuse_columns_of_key("the value must have the columns of the key")


def _read_format(source: Endpoint) -> None:
    given = source.need("value.format", "format")
    if given.value not in _SOURCE_FORMATS:
        reason = f"the format {given.value!r} has no counterpart; known are "
        raise Refusal(reason + ", ".join(_SOURCE_FORMATS), given.offset)
    source.format = given.value
    source.section["format"] = _OF_REGISTRY.get(given.value, given.value)
    if given.value in _OF_REGISTRY:
        source.take_registry()
    _read_format_options(source)
    key_fields = source.take("key.fields")
    source.take("key.format")
    source.refuse_columns_of_key(
        "columns of a record's key cannot be read; the value must have them"
    )
    if key_fields is not None:
        text = "columns are read from the value, not from the key"
        source.note("format", text, key_fields.offset)


def _read_format_options(source: Endpoint) -> None:
    ignore = source.of_format("ignore-parse-errors")
    ignored = ignore is not None and is_true(ignore)
    in_flink = (
        "Flink drops it, or reads NULLs" if ignored else "with fail the job stops, as in Flink"
    )
    source.top["on_error"] = "quarantine"
    text = f"a bad message is kept, with the reason; {in_flink}"
    source.note("/on_error", text, ignore.offset if ignore else source.table.offset)
    stamp = source.of_format("timestamp-format.standard")
    if stamp is not None:
        if stamp.value not in _TIMES:
            raise Refusal("timestamp-format.standard is SQL or ISO-8601", stamp.offset)
        if stamp.value != "SQL":
            source.top["timestamp_format"] = _TIMES[stamp.value]
    match source.format:
        case "canal-json":
            for key in ("database", "table"):
                if (pattern := source.of_format(f"{key}.include")) is not None:
                    source.section[key] = pattern.value
        case "debezium-json":
            source.of_format("schema-include")  # a schema in the message is recognized
        case "json":
            if source.is_on("fail-on-missing-field"):
                source.section["json"] = {"ignore_null_fields": False}
            source.of_format("decode.json-parser.enabled")
        case "csv":
            _read_csv(source)


def _read_csv(source: Endpoint) -> None:
    columns = source.table.columns
    section: JsonObject = {
        "fields": [each.name for each in columns if each.type is not None and not each.metadata]
    }
    for theirs, ours in _CSV.items():
        if (option := source.of_format(theirs)) is not None:
            section[ours] = re.sub(r"\\(u[0-9A-Fa-f]{4}|.)", _unescape, option.value)
    if source.is_on("disable-quote-character"):
        section["quote"] = ""
    comments = source.of_format("allow-comments")
    if comments is not None and is_true(comments):
        raise Refusal("lines of comments have no counterpart", comments.offset)
    source.of_format("array-element-delimiter")
    source.section["csv"] = section


def _unescape(found: re.Match[str]) -> str:
    text = found[1]
    return (
        chr(int(text[1:], 16))
        if len(text) > 1
        else {"t": "\t", "n": "\n", "r": "\r"}.get(text, text)
    )


def _read_start(source: Endpoint) -> None:
    mode = source.take("scan.startup.mode")
    reset = source.take("properties.auto.offset.reset")
    word = mode.value if mode else "group-offsets"
    at = mode.offset if mode else source.table.offset
    match word:
        case "earliest-offset" | "latest-offset":
            source.section["start"] = word.removesuffix("-offset")
        case "timestamp":
            stamp = source.need("scan.startup.timestamp-millis")
            if not stamp.value.isdigit():
                raise Refusal("scan.startup.timestamp-millis is a number", stamp.offset)
            source.section["start"] = {"timestamp": instant_text(int(stamp.value))}
        case "specific-offsets":
            given = source.need("scan.startup.specific-offsets")
            offsets = {found[1]: int(found[2]) for found in _OFFSETS.finditer(given.value)}
            if not offsets:
                reason = "write it like partition:0,offset:42;partition:1,offset:300"
                raise Refusal(reason, given.offset)
            source.section["start"] = {"offsets": offsets}
        case "group-offsets":
            latest = reset is not None and reset.value == "latest"
            source.section["start"] = "latest" if latest else "earliest"
            # With a reset a group without offsets starts there, in Flink too.
            source.note("start", _COMMITTED, at, differs=reset is None)
        case _:
            raise Refusal(f"scan.startup.mode {word!r} is not known", at)
    bounded = source.take("scan.bounded.mode")
    if bounded is not None and bounded.value != "unbounded":
        text = "Flink ends there; run it with --until-caught-up to end at the topic's end"
        source.note("start", text, bounded.offset)
    source.skip("scan.bounded.timestamp-millis", "scan.bounded.specific-offsets")
    source.skip("scan.topic-partition-discovery.interval", "scan.parallelism")


def _read_watermark(source: Endpoint) -> None:
    if (idle := source.take("scan.watermark.idle-timeout")) is not None:
        source.watermark["idle_after"] = duration_or_never(idle)
    group = source.take("scan.watermark.alignment.group")
    drift = source.take("scan.watermark.alignment.max-drift")
    every = source.take("scan.watermark.alignment.update-interval")
    if group is not None and drift is not None:
        align = {"group": group.value, "max_drift": duration(drift)}
        source.watermark["align"] = align | ({"every": duration(every)} if every else {})
    strategy = source.take("scan.watermark.emit.strategy")
    if strategy is not None and strategy.value == "on-event":
        source.watermark["within_epoch"] = True
    source.take("scan.watermark.emit.on-event.gap")


# --- sinks --------------------------------------------------------------------------------------


def read_sink(table: Table, *, windows: bool) -> Endpoint | None:
    """Return the sink that a table is; None if its rows go nowhere but to a screen."""
    sink = Endpoint(table)
    connector = sink.need("connector")
    if connector.value in _WITHOUT_SINK:
        return None
    if connector.value not in ("kafka", "upsert-kafka"):
        reason = (
            f"the connector {connector.value!r} has no counterpart: {_KAFKA}; Kafka Connect takes "
            "the rows from a topic, and any engine that reads Delta from the job's table"
        )
        raise Refusal(reason, connector.offset)
    sink.section["topic"] = sink.need("topic").value
    sink.take_connection()
    _read_sink_format(sink, upsert=connector.value == "upsert-kafka", windows=windows)
    _read_sink_values(sink)
    parallelism = sink.take("sink.parallelism")
    if parallelism is not None and parallelism.value.isdigit():
        sink.section["partitions"] = int(parallelism.value)
        sink.note("partitions", "of the topic, if the job creates it", parallelism.offset)
    delivery = sink.take("sink.delivery-guarantee")
    if delivery is not None and delivery.value in ("exactly-once", "at-least-once"):
        sink.section["delivery"] = delivery.value.replace("-", "_")
    for key, text in {
        "sink.transactional-id-prefix": "transactional ids are retally-<job>-<table id>",
        "sink.partitioner": "the partition is the hash of the key, as Java's",
    }.items():
        if (option := sink.take(key)) is not None:
            sink.note("topic", text, option.offset)
    sink.skip(*_OF_SOURCE)
    sink.finish()
    return sink


def _read_sink_format(sink: Endpoint, *, upsert: bool, windows: bool) -> None:
    given = sink.take("value.format", "format") or sink.need("value.format")
    sink.format = given.value
    plain = {"json": "upsert-json", "avro-confluent": "upsert-avro"}.get(given.value)
    if given.value in _OF_REGISTRY:
        sink.take_registry()
        # Subjects are named after the topic, as Flink does by default.
        subject, ours = sink.registry.get("subject"), f"{sink.section['topic']}-value"
        if subject is not None and subject.value != ours:
            text = f"the subject is {ours}; in Flink {subject.value}"
            sink.note("format", text, subject.offset, differs=True)
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
        raise Refusal(reason, given.offset)
    else:
        known = "json and avro-confluent"
        if not upsert:
            known = f"{', '.join(_SINK_FORMATS)}; {known} for windows"
        reason = f"the format {given.value!r} has no counterpart in a sink; known are {known}"
        raise Refusal(reason, given.offset)


def _read_sink_values(sink: Endpoint) -> None:
    """Note what the keys and values of the sink's records are, if it is other than in Flink."""
    key_format, registered = sink.take("key.format"), sink.format in _OF_REGISTRY
    if key_format is not None and key_format.value != ("avro-confluent" if registered else "json"):
        kind = "a record of Avro" if registered else "a JSON object"
        text = f"the key is {kind}; in Flink {key_format.value}"
        sink.note("format", text, key_format.offset, differs=True)
    include = sink.take("value.fields-include")
    if include is not None and include.value.upper() == "EXCEPT_KEY":
        text = "the value has the columns of the key too"
        sink.note("format", text, include.offset, differs=True)
    stamp = sink.of_format("timestamp-format.standard")
    if stamp is not None and stamp.value == "ISO-8601":
        text = "times are written as in SQL, 2026-01-31 12:00:00"
        sink.note("format", text, stamp.offset, differs=True)
    nulls = sink.of_format("encode.ignore-null-fields")
    if nulls is not None and is_true(nulls):
        sink.note("format", "fields that are NULL are written", nulls.offset, differs=True)
    if (fields := sink.take("key.fields")) is not None:
        sink.key = ("key.fields", fields.value.split(";"), fields.offset)
    for name in _OF_JSON:
        sink.of_format(name)
        sink.take(f"key.json.{name}")
    if key_format is not None and key_format.value != "json":
        sink.skip(f"key.{key_format.value}.")
