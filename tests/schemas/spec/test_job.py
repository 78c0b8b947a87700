"""The job spec: defaults, limits of each key, rules between keys, and `document()`."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from schemas import limits
from schemas.spec.file import SpecError, load_spec, spec_text
from schemas.spec.job import JobSpec
from schemas.spec.operator_classes import GeneratorClass
from schemas.spec.source import StartAt
from schemas.spec.watermark import RowTime, TimeDefaults
from schemas.types.sql_types import BIGINT

SMALLEST: dict[str, Any] = {
    "name": "items",
    "source": {"topic": "shop.product"},
    "columns": {"name": "STRING", "cnt": "INT"},
    "query": "SELECT name, SUM(cnt) FROM product GROUP BY name",
}

# Every key, each with a value other than its default.
FULL = """\
name: all-of-it
source:
  topics: [shop.product, shop.product-2]
  connection: prod
  format: canal-json
  database: shop_[0-9]+
  table: product.*
  start: {timestamp: "2026-01-31T12:00:00+02:00"}
  group: mine
columns:
  id: BIGINT
  price: DECIMAL(10, 2)
  at: TIMESTAMP(3)
  no: BYTES
timestamp_format: iso
query: SELECT id, MAX(price) FROM product GROUP BY id
minibatch: {clock: event, interval: 10s, size: 100, latency: 250ms, max_rows: 200}
watermark:
  time: {column: at}
  generator: punctuated
  delay: 5s
  marker: id = 0
  idle_after: 1 min
  align: {group: g, max_drift: 2h, every: 3s}
  emit_every: 100ms
  future_skew: 2d
state: {ttl: 1d, buckets: 4096, refresh: false, emit_expired: false}
sink:
  {topic: out, connection: other, format: upsert-json, partitions: 7, delivery: at_least_once,
   publishers: 2}
mirror: 90s
retention: 14d
on_error: fail
max_bad_fraction: 0.25
on_schema_change: continue
on_truncate: quarantine
durable: true
"""


def spec_with(*path: str, value: Any) -> dict[str, Any]:
    """Return the smallest spec with one key set to a value."""
    spec: dict[str, Any] = copy.deepcopy(SMALLEST)
    section = spec
    for key in path[:-1]:
        section = section.setdefault(key, {})
    section[path[-1]] = value
    return spec


def problems_of(spec: dict[str, Any] | str) -> dict[str, str]:
    with pytest.raises(SpecError) as caught:
        load_spec(spec)
    return {problem.path: problem.reason for problem in caught.value.problems}


def test_spec_round_trips_through_document_yaml_and_pickle() -> None:
    spec = load_spec(FULL)
    assert load_spec(spec.document()) == spec
    assert load_spec(spec_text(spec)) == spec
    assert load_spec(spec_text(spec)).document() == spec.document()
    assert pickle.loads(pickle.dumps(spec)) == spec


def test_document_has_the_users_keys_and_readable_durations() -> None:
    document = load_spec(FULL).document()
    assert document["minibatch"] == {
        "clock": "event",
        "interval": "10s",
        "size": 100,
        "latency": "250ms",
        "max_rows": 200,
    }
    assert document["source"]["start"] == {"timestamp": "2026-01-31T10:00:00.000Z"}
    assert document["source"]["topics"] == ["shop.product", "shop.product-2"]
    assert document["columns"]["price"] == "DECIMAL(10, 2)"
    assert document["watermark"]["time"] == {"column": "at"}
    assert "topic" not in document["source"]


def test_document_keeps_the_order_of_columns() -> None:
    spec = load_spec(spec_with("columns", value={"b": "INT", "a": "INT", "c": "INT"}))
    assert list(load_spec(spec_text(spec)).columns) == ["b", "a", "c"]


def test_copy_under_another_name_gets_its_own_default_group() -> None:
    copied = load_spec({**load_spec(SMALLEST).document(), "name": "twin"})
    assert copied.source.group == "retally-twin"


def test_json_schema_speaks_of_the_users_keys() -> None:
    schema = JobSpec.model_json_schema()
    assert "retention" in schema["properties"]
    assert "latency" in schema["$defs"]["MiniBatch"]["properties"]


BAD: list[tuple[str, Any, str]] = [
    ("name", "Items", "is not a job name"),
    ("name", "9items", "is not a job name"),
    ("name", "a" * 41, "is not a job name"),
    ("name", "../items", "is not a job name"),
    ("name", "items\n", "is not a job name"),
    ("name", "\u0131tems", "is not a job name"),
    ("name", "", "is not a job name"),
    ("name", 5, "must be text"),
    ("name", None, "must be text"),
    ("source", "shop", "must be a mapping; its keys are topic,"),
    ("source.topic", "a b", "is not a topic name"),
    ("source.topic", "a" * 250, "is not a topic name"),
    ("source.topic", ".", "Kafka reserves it"),
    ("source.topic", "..", "Kafka reserves it"),
    ("source.topic", "", "is not a topic name"),
    ("source.topics", "t", "must be a list"),
    ("source.topics", ["t"], "contradicts topic"),
    ("source.connection", "10.0.0.1:9092", "is not a connection name"),
    ("source.format", "xml", "must be one of avro, canal-json"),
    ("source.database", "(", "is not a regular expression"),
    ("source.database", "a" * 501, "at most 500 characters"),
    ("source.table", "*", "is not a regular expression"),
    (
        "source.table",
        "(?!tmp).*",
        "invalid perl operator: (?!; use RE2 syntax, without look-around",
    ),
    ("source.table", r"(a|b)\1", "without look-around and back-references"),
    ("source.database", r"shop\Z", "invalid escape sequence: \\Z"),
    ("source.database", "\ud800", "is not a regular expression"),
    ("source.start", "earlier", "did you mean 'earliest'"),
    ("source.start", 5, "or a mapping with timestamp or offsets"),
    ("source.start", {}, "give either timestamp or offsets"),
    ("source.start", {"timestamp": 1, "offsets": {"0": 1}}, "give either timestamp or offsets"),
    ("source.start.timestamp", "yesterday", "is not a time"),
    ("source.start.timestamp", -1, "epoch milliseconds"),
    ("source.start.timestamp", True, "must be a time"),
    ("source.start.offsets", {}, "names no partition"),
    ("source.start.offsets", {"0": -1}, "must be at least 0"),
    ("source.start.offsets", {"0": "x"}, "must be a whole number"),
    ("source.start.offsets", {"p0": 1}, "must be a partition"),
    ("source.start.offsets", {"00": 1}, "must be a partition"),
    ("source.group", "a b", "is not a group id"),
    ("columns", {}, "names no column"),
    ("columns", ["a"], "must be a mapping, as in {a: b}"),
    ("columns", {f"c{i}": "INT" for i in range(limits.COLUMNS_MAX + 1)}, "at most 1000"),
    ("columns", {"a": "INTT"}, "unknown type 'INTT'"),
    ("columns", {"a": "DECIMAL(39, 0)"}, "use a precision from 1 to 38"),
    ("columns", {"a": "DECIMAL(10"}, "put the type in quotes"),
    ("columns", {"a": None}, "must be a type"),
    ("columns", {"a": "X" * 1_000}, "is not a type"),
    ("columns", {"a-b": "INT"}, "is not a column name"),
    (
        "columns",
        {"__position": "INT"},
        "that retally itself adds to the rows; rename it in the source",
    ),
    ("columns", {"__Weight": "INT"}, "'__Weight' is a column that retally itself adds"),
    ("columns", {"1a": "INT"}, "is not a column name"),
    ("columns", {"a": "INT", "A": "INT"}, "differs from 'a' only in case"),
    ("timestamp_format", "rfc", "must be one of sql, iso"),
    ("query", "  ", "must not be empty"),
    ("query", "x" * 20_001, "has 20001 characters; use at most 20000"),
    ("query", ["SELECT"], "must be text"),
    ("minibatch", None, "must be a mapping; its keys are clock, interval, size"),
    ("minibatch.size", 0, "must be greater than 0"),
    ("minibatch.size", -1, "must be greater than 0"),
    ("minibatch.size", True, "must be a whole number"),
    ("minibatch.size", 5.5, "must be a whole number"),
    ("minibatch.latency", "0s", "must be greater than 0"),
    ("minibatch.latency", "-1s", "must not be negative"),
    ("minibatch.latency", None, "must be a duration"),
    ("minibatch.latency", 5, "5 has no unit; write it like 5s or 5ms"),
    ("minibatch.latency", 0, "must be greater than 0"),
    ("watermark.delay", "5", "5 has no unit; write it like 5s or 5ms"),
    ("retention", 7, "7 has no unit"),
    ("state.ttl", 60_000, "60000 has no unit"),
    ("minibatch.max_rows", 4_999, "must be at least size, which is 5000"),
    ("minibatch.max_rows", 0, "must be greater than 0"),
    ("minibatch.clock", "wall", "must be one of processing, event"),
    ("minibatch.interval", "10s", "needs clock: event"),
    ("watermark.time", "now", "or a mapping with column or expression"),
    ("watermark.time", {}, "is required"),
    ("watermark.time.column", "nope", "'nope' is not one of columns (name, cnt)"),
    ("watermark.time.column", "name", "'name' is STRING; use a column of one of"),
    ("watermark.generator", "bound", "did you mean 'bounded'"),
    ("watermark.generator", "punctuated", "is required by generator: punctuated"),
    ("watermark.generator.class", "os.system", "write it like package.module:ClassName"),
    ("watermark.generator.class", "a:b" + "c" * 500, "at most 500 characters"),
    ("watermark.generator", "automatic", "automatic needs time: ingestion"),
    ("watermark.delay", "-5s", "must not be negative"),
    ("watermark.marker", "x = 1", "needs generator: punctuated"),
    ("watermark.exact", "yes", "must be true or false"),
    ("watermark.idle_after", 0, "must be greater than 0"),
    ("watermark.align", {}, "is required"),
    ("watermark.align", {"group": "g", "max_drift": 0}, "must be greater than 0"),
    ("watermark.emit_every", "0ms", "must be greater than 0"),
    ("watermark.future_skew", "0s", "must be greater than 0"),
    ("state.ttl", "-1s", "must not be negative"),
    ("state.buckets", 0, "must be greater than 0"),
    ("state.buckets", limits.BUCKETS_MAX + 1, "must be at most 4096"),
    ("state.refresh", 1, "must be true or false"),
    ("state.emit_expired", "on", "must be true or false"),
    ("sink", {}, "is required"),
    ("sink.topic", "shop.product", "does not read its own output"),
    ("sink.topic", "a" * 241, "at most 240 characters"),
    ("sink.topic", "..", "Kafka reserves it"),
    ("mirror", "0s", "must be greater than 0"),
    ("mirror", True, "must be a duration"),
    ("retention", 0, "must be greater than 0"),
    ("on_error", "tolerate", "must be one of quarantine, fail"),
    ("max_bad_fraction", 0, "must be greater than 0"),
    ("max_bad_fraction", 1.01, "must be at most 1"),
    ("max_bad_fraction", float("nan"), "must be"),
    ("max_bad_fraction", "0.5", "must be a number"),
    ("on_schema_change", "ignore", "must be one of stop, continue"),
    ("on_truncate", "ignore", "must be one of stop, apply, quarantine"),
    ("durable", "true", "must be true or false"),
]


@pytest.mark.parametrize(("path", "value", "reason"), BAD)
def test_bad_value_is_named_with_its_path_and_the_reason(
    path: str, value: Any, reason: str
) -> None:
    problems = problems_of(spec_with(*path.split("."), value=value))
    top = path.split(".", maxsplit=1)[0]
    assert any(at.startswith(top) and reason in why for at, why in problems.items()), problems


@pytest.mark.parametrize("key", ["format", "partitions", "delivery", "connection", "publishers"])
def test_bad_sink_key_is_named(key: str) -> None:
    problems = problems_of(spec_with("sink", value={"topic": "out", key: {}}))
    assert list(problems) == [f"sink.{key}"]


@pytest.mark.parametrize(
    ("partitions", "publishers", "reason"),
    [
        (4, 5, "must be at most partitions, which is 4"),
        (9, 9, "must be at most 8"),
        (4, 0, "greater than 0"),
    ],
)
def test_each_publisher_has_a_partition(partitions: int, publishers: int, reason: str) -> None:
    sink = {"topic": "out", "partitions": partitions, "publishers": publishers}
    problems = problems_of(spec_with("sink", value=sink))
    assert list(problems) == ["sink.publishers"]
    assert reason in problems["sink.publishers"]


@pytest.mark.parametrize("key", ["name", "source", "columns", "query"])
def test_required_key_that_is_missing_is_named(key: str) -> None:
    assert problems_of({k: v for k, v in SMALLEST.items() if k != key}) == {
        key: "is required; add it"
    }


def test_source_without_a_topic_is_refused() -> None:
    problems = problems_of({**SMALLEST, "source": {}})
    hint = "add topic: NAME, topics: [NAME, ...], or files"
    assert problems == {"source.topics": f"names no topic; {hint}"}


def test_topic_named_twice_is_refused() -> None:
    problems = problems_of({**SMALLEST, "source": {"topics": ["a", "b", "a"]}})
    assert problems == {"source.topics": "'a' is named twice; keep one"}


def test_bad_topic_in_a_list_is_named_by_its_position() -> None:
    assert list(problems_of({**SMALLEST, "source": {"topics": ["a", "b c"]}})) == [
        "source.topics.1"
    ]


def test_offsets_belong_to_one_topic() -> None:
    source = {"topics": ["a", "b"], "start": {"offsets": {"0": 12}}}
    assert list(problems_of({**SMALLEST, "source": source})) == ["source.start.offsets"]


def test_offsets_are_read_by_partition_and_written_back_as_text() -> None:
    spec = load_spec(spec_with("source", "start", value={"offsets": {"0": 12, "10": 2**40}}))
    assert isinstance(spec.source.start, StartAt)
    assert spec.source.start.offsets == {0: 12, 10: 2**40}
    assert spec.document()["source"]["start"] == {"offsets": {"0": 12, "10": 2**40}}


@pytest.mark.parametrize("topic", ["out-progress", "out-shares"])
def test_progress_topics_of_the_sink_may_not_be_a_source_either(topic: str) -> None:
    spec = {**SMALLEST, "source": {"topic": topic}, "sink": {"topic": "out"}}
    assert list(problems_of(spec)) == ["sink.topic"]


def test_changelog_source_has_no_database_to_filter() -> None:
    source = {"topic": "t", "format": "changelog-json", "table": "x"}
    assert list(problems_of({**SMALLEST, "source": source})) == ["source.table"]


def test_upsert_source_has_no_table_to_filter_either() -> None:
    spec = {
        **SMALLEST,
        "source": {"topic": "t", "format": "upsert-json", "database": "x"},
        "primary_key": ["name"],
        "dedupe": "pk",
    }
    assert list(problems_of(spec)) == ["source.database"]


def test_idle_after_may_be_never_which_the_default_of_the_operator_does_not_change() -> None:
    spec = load_spec({**SMALLEST, "watermark": {"idle_after": "never"}})
    assert spec.watermark.idle_after_ms == 0
    assert spec.document()["watermark"]["idle_after"] == "never"
    assert load_spec(spec.document()) == spec
    assert spec.with_defaults(TimeDefaults(30_000)) == spec


def test_the_default_of_the_operator_is_for_specs_without_idle_after() -> None:
    silent = load_spec(SMALLEST)
    assert silent.with_defaults(TimeDefaults(30_000)).watermark.idle_after_ms == 30_000
    assert silent.with_defaults(TimeDefaults()) == silent
    own = load_spec({**SMALLEST, "watermark": {"idle_after": "5s"}})
    assert own.with_defaults(TimeDefaults(30_000)) == own


def test_the_default_of_the_operator_is_for_sections_without_emit_every() -> None:
    source = {"topic": "t", "format": "changelog-json"}
    silent = load_spec({**SMALLEST, "source": source, "watermark": {"from": "progress"}})
    found = silent.with_defaults(TimeDefaults(30_000, 1_000)).watermark
    assert (found.period_ms, found.idle_after_ms) == (1_000, None)
    assert (silent.watermark.period_ms, load_spec(silent.document())) == (200, silent)
    own = load_spec({**SMALLEST, "watermark": {"emit_every": "200ms"}})
    assert own.with_defaults(TimeDefaults(None, 1_000)).watermark.period_ms == 200


def test_modes_of_debezium_belong_to_its_format() -> None:
    modes = {"decimal_handling_mode": "precise", "time_precision_mode": "connect"}
    source = {"topic": "t", "debezium": modes}
    assert list(problems_of({**SMALLEST, "source": source})) == ["source.debezium"]
    spec = load_spec({**SMALLEST, "source": {**source, "format": "debezium-json"}})
    assert spec.source.debezium is not None
    assert spec.source.debezium.decimal_handling_mode == "precise"
    assert spec.document()["source"]["debezium"] == modes
    wrong = {**source, "format": "debezium-json", "debezium": {"time_precision_mode": "conect"}}
    assert list(problems_of({**SMALLEST, "source": wrong})) == [
        "source.debezium.time_precision_mode"
    ]


def test_how_a_source_writes_binary_belongs_to_canal_json() -> None:
    source = {"topic": "t", "canal": {"binary": "base64"}}
    spec = load_spec({**SMALLEST, "source": source})
    assert spec.source.canal is not None and spec.source.canal.binary == "base64"
    assert spec.document()["source"]["canal"] == {"binary": "base64"}
    other = {**source, "format": "maxwell-json"}
    assert list(problems_of({**SMALLEST, "source": other})) == ["source.canal"]
    wrong = {**source, "canal": {"binary": "hex"}}
    assert list(problems_of({**SMALLEST, "source": wrong})) == ["source.canal.binary"]


def test_dedupe_needs_a_primary_key_of_declared_columns() -> None:
    assert "needs a primary_key" in problems_of({**SMALLEST, "dedupe": "pk"})["dedupe"]
    given = {**SMALLEST, "dedupe": "pk", "primary_key": ["cnt", "name"]}
    spec = load_spec(given)
    assert spec.primary_key == ("cnt", "name")
    assert load_spec(spec.document()) == spec
    for key, path in ((["id"], "primary_key.0"), (["cnt", "cnt"], "primary_key.1")):
        assert list(problems_of({**given, "primary_key": key})) == [path]
    assert list(problems_of({**given, "primary_key": []})) == ["primary_key"]
    assert list(problems_of({**given, "dedupe": "row"})) == ["dedupe"]


def test_a_truncate_is_applied_only_by_a_job_that_knows_the_rows_and_whose_it_is() -> None:
    source = {"topic": "t", "database": "shop", "table": "order-items"}
    keyed = {"primary_key": ["cnt"], "dedupe": "pk", "on_truncate": "apply"}
    assert load_spec({**SMALLEST, "source": source, **keyed}).on_truncate == "apply"
    rowless = {**SMALLEST, "source": source, "on_truncate": "apply"}
    assert "needs dedupe: pk" in problems_of(rowless)["on_truncate"]
    for key, pattern in (("database", None), ("table", "items_.*"), ("table", "a|b")):
        several = {name: text for name, text in {**source, key: pattern}.items() if text}
        problems = problems_of({**SMALLEST, "source": several, **keyed})
        assert f"source.{key} to be one name" in problems["on_truncate"]


def test_last_images_need_a_job_that_keeps_them() -> None:
    source = {"topic": "t", "format": "upsert-json"}
    assert "dedupe: pk" in problems_of({**SMALLEST, "source": source})["dedupe"]


def test_event_clock_needs_an_interval_and_goes_without_size() -> None:
    assert problems_of(spec_with("minibatch", "clock", value="event")) == {
        "minibatch.interval": "is required by clock: event; write it like interval: 10s"
    }
    spec = load_spec(spec_with("minibatch", value={"clock": "event", "interval": "10s"}))
    assert spec.minibatch.size is None
    assert spec.minibatch.interval_ms == 10_000
    assert load_spec(spec.document()) == spec


def test_default_of_max_rows_makes_room_for_a_larger_size() -> None:
    assert load_spec(spec_with("minibatch", "size", value=600_000)).minibatch.max_rows == 600_000


def test_monotonous_generator_has_no_delay() -> None:
    watermark = {"generator": "monotonous", "delay": "1s", "exact": True}
    assert list(problems_of(spec_with("watermark", value=watermark))) == [
        "watermark.delay",
        "watermark.exact",
    ]


def test_ingestion_time_has_a_generator_of_its_own_unless_one_is_named() -> None:
    def generator(**watermark: str) -> object:
        spec = load_spec(spec_with("watermark", value=watermark))
        assert load_spec(spec.document()) == spec
        return spec.watermark.generator

    assert generator(time="es") == "bounded"
    assert generator(time="ingestion") == "automatic"
    assert generator(time="ingestion", generator="bounded", delay="1s") == "bounded"
    watermark = {"time": "ingestion", "delay": "1s"}
    assert list(problems_of(spec_with("watermark", value=watermark))) == ["watermark.delay"]


def test_generator_class_is_kept_as_its_path() -> None:
    spec = load_spec(spec_with("watermark", "generator", value={"class": "my.marks:Every10"}))
    assert isinstance(spec.watermark.generator, GeneratorClass)
    assert spec.watermark.generator.path == "my.marks:Every10"
    assert spec.document()["watermark"]["generator"] == {"class": "my.marks:Every10"}


def test_time_column_may_be_epoch_milliseconds() -> None:
    spec = {**SMALLEST, "columns": {"at": "BIGINT"}, "watermark": {"time": {"column": "at"}}}
    assert load_spec(spec).columns == {"at": BIGINT}


@pytest.mark.parametrize(
    ("path", "wrong", "right"),
    [
        ((), "qeury", "query"),
        ((), "minibatches", "minibatch"),
        ((), "on_eror", "on_error"),
        (("source",), "Topic", "topic"),
        (("source", "start"), "offset", "offsets"),
        (("minibatch",), "latncy", "latency"),
        (("watermark",), "idle", "idle_after"),
        (("watermark", "align"), "drift", "max_drift"),
        (("watermark", "time"), "colum", "column"),
        (("state",), "bucket", "buckets"),
        (("sink",), "partition", "partitions"),
    ],
)
def test_unknown_key_suggests_the_nearest_one(
    path: tuple[str, ...], wrong: str, right: str
) -> None:
    problems = problems_of(spec_with(*path, wrong, value=1))
    assert problems[".".join(path)] == f"unknown key '{wrong}'; did you mean '{right}'?"


@pytest.mark.parametrize(
    "key",
    ["bootstrap.servers", "sasl.jaas.config", "kafka.interceptor.classes", "ssl.keystore.location"],
)
def test_kafka_client_option_in_a_source_or_sink_is_refused(key: str) -> None:
    assert "unknown key" in problems_of(spec_with("source", key, value="x"))["source"]
    sink = {"topic": "out", key: "x"}
    assert "unknown key" in problems_of(spec_with("sink", value=sink))["sink"]


def test_all_problems_are_named_at_once_those_between_keys_too() -> None:
    spec = {
        "name": "Items",
        "source": {"topic": "t", "start": "soon", "conection": "x"},
        "columns": {"a": "INT"},
        "query": "",
        "minibatch": {"clock": "event", "latency": "x"},
        "watermark": {"time": {"column": "b"}},
        "sink": {"topic": "out", "partitions": 0},
        "mirror": 0,
    }
    assert set(problems_of(spec)) == {
        "name",
        "source",
        "source.start",
        "query",
        "minibatch.interval",
        "minibatch.latency",
        "watermark.time.column",
        "sink.partitions",
        "mirror",
    }


def events(format: str, **section: Any) -> dict[str, Any]:
    source = {"topic": "t", "format": format, **section}
    return {**SMALLEST, "source": source}


def test_plain_events_say_where_their_columns_are() -> None:
    paths = {"name": "user.name", "cnt": "$.items[0].cnt"}
    spec = load_spec(events("json", json={"paths": paths}))
    written = spec.document()["source"]["json"]
    assert written == {"paths": paths, "ignore_null_fields": True}
    assert load_spec(spec_text(spec)) == spec
    layout = {"fields": ["cnt", "skipped", "name"], "delimiter": ";", "quote": ""}
    spec = load_spec(events("csv", csv={**layout, "null_literal": ""}))
    written = spec.document()["source"]["csv"]
    assert written == {
        "fields": ("cnt", "skipped", "name"),
        "delimiter": ";",
        "quote": "",
        "escape": "",
        "null_literal": "",
    }
    assert load_spec(spec_text(spec)) == spec


@pytest.mark.parametrize(
    ("document", "place", "reason"),
    [
        (events("csv", json={}), "source.json", "needs format: json"),
        (events("json", csv={}), "source.csv", "needs format: csv"),
        (events("json", table="t"), "source.table", "json messages name no table"),
        (events("csv", database="d"), "source.database", "csv messages name no table"),
        (events("json", json={"paths": {"cnt": "a..b"}}), "source.json.paths.cnt", "not a path"),
        (events("json", json={"paths": {"other": "a"}}), "columns", "source.json.paths names"),
        (events("csv", csv={"fields": ["name"]}), "columns.cnt", "not one of source.csv.fields"),
        (events("csv", csv={"fields": ["a", "a"]}), "source.csv.fields.1", "named twice"),
        (events("csv", csv={"delimiter": ";;"}), "source.csv.delimiter", "1 character"),
        (events("csv", csv={"delimiter": '"'}), "source.csv", "must be different"),
        (events("csv", csv={"quote": "\n"}), "source.csv", "a line end cannot be"),
    ],
)
def test_sections_of_plain_events_are_checked(
    document: dict[str, Any], place: str, reason: str
) -> None:
    problems = problems_of(document)
    assert list(problems) == [place]
    assert reason in problems[place]


def test_the_order_of_columns_is_kept_where_it_counts_the_fields_of_a_line() -> None:
    columns = {"cnt": "INT", "name": "STRING"}
    for format, kept in (("csv", True), ("json", False)):
        first = load_spec(events(format))
        second = load_spec({**events(format), "columns": columns}).with_column_order(first)
        assert (list(second.columns) == list(columns)) is kept
    fields = {"fields": ["name", "cnt"]}
    first = load_spec(events("csv", csv=fields))
    second = load_spec({**events("csv", csv=fields), "columns": columns}).with_column_order(first)
    assert list(second.columns) == list(first.columns)


TWO_STRATEGIES = """
name: items
source:
  topics:
    - shop.old
    - {topic: shop.new, watermark: {time: {column: at}, delay: 5s, idle_after: 1m}}
columns: {id: BIGINT, at: BIGINT}
query: SELECT COUNT(*) FROM t
watermark: {delay: 1s}
"""


def test_a_topic_may_have_a_watermark_section_in_place_of_that_of_the_job() -> None:
    spec = load_spec(TWO_STRATEGIES)
    assert spec.source.topics == ("shop.old", "shop.new")
    old, new = spec.strategies["shop.old"], spec.strategies["shop.new"]
    assert (old, old.delay_ms) == (spec.watermark, 1_000)
    assert (new.time, new.delay_ms) == (RowTime(column="at"), 5_000)
    assert load_spec(spec.document()) == spec
    assert load_spec(spec_text(spec)) == spec
    listed = spec.document()["source"]["topics"]
    assert (listed[0], listed[1]["topic"]) == ("shop.old", "shop.new")


def test_the_operators_idleness_is_for_each_topic_that_has_none() -> None:
    strategies = load_spec(TWO_STRATEGIES).with_defaults(TimeDefaults(7_000)).strategies
    found = {topic: strategy.idle_after_ms for topic, strategy in strategies.items()}
    assert found == {"shop.old": 7_000, "shop.new": 60_000}


@pytest.mark.parametrize(
    ("section", "path", "reason"),
    [
        ("{dely: 1s}", "", "unknown key 'dely'; did you mean 'delay'?"),
        ("{align: {group: g}}", ".align.max_drift", "is required; add it"),
        ("{time: {column: att}}", ".time.column", "'att' is not one of columns (id, at)"),
        ("{generator: lagg}", ".generator", "must be one of bounded"),
        ("{from: progress}", ".from", "needs source.format: changelog-json"),
        ("{from: progress, exact: true}", ".from", "exact has no effect; remove it"),
    ],
)
def test_a_problem_of_a_topics_section_has_its_place(section: str, path: str, reason: str) -> None:
    text = TWO_STRATEGIES.replace("{time: {column: at}, delay: 5s, idle_after: 1m}", section)
    with pytest.raises(SpecError) as caught:
        load_spec(text)
    (problem,) = caught.value.problems
    assert problem.path == f"source.topics.1.watermark{path}"
    assert reason in problem.reason
    assert problem.line == 6


def test_a_topic_named_twice_is_refused_however_it_is_written() -> None:
    listed = ["a", {"topic": "a", "watermark": {"delay": "1s"}}]
    problems = problems_of({**SMALLEST, "source": {"topics": listed}})
    assert problems == {"source.topics": "'a' is named twice; keep one"}


def test_a_sink_in_avro_needs_a_schema_registry_and_no_other_does() -> None:
    sink = {"topic": "s", "format": "upsert-avro", "schema_registry": "registry"}
    spec = load_spec({**SMALLEST, "sink": sink})
    assert spec.sink is not None
    assert spec.sink.schema_registry == "registry"
    assert load_spec(spec.document()) == spec
    del sink["schema_registry"]
    needed = problems_of({**SMALLEST, "sink": sink})["sink.schema_registry"]
    assert "is required by format: upsert-avro" in needed
    sink = {"topic": "s", "schema_registry": "registry"}
    excess = problems_of({**SMALLEST, "sink": sink})["sink.schema_registry"]
    assert "has no effect with format: changelog-json" in excess


def test_a_schema_registry_belongs_to_avro() -> None:
    source = {"topic": "t", "format": "debezium-avro", "schema_registry": "registry"}
    assert load_spec({**SMALLEST, "source": source}).source.schema_registry == "registry"
    del source["schema_registry"]
    needed = problems_of({**SMALLEST, "source": source})["source.schema_registry"]
    assert "is required by format: debezium-avro" in needed
    source = {"topic": "t", "format": "json", "schema_registry": "registry"}
    excess = problems_of({**SMALLEST, "source": source})["source.schema_registry"]
    assert "has no effect with format: json" in excess
