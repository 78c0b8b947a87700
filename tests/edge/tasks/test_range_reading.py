"""A range is read the same with the scanner and without it."""

from __future__ import annotations

import json
import random
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Message

from jobs.core.job.job_plan import plan_of
from jobs.edge.kafka.offset_ranges import OffsetRange
from jobs.edge.kafka.records import Record, Records
from jobs.edge.table.file_writer import EpochAttempt
from jobs.edge.tasks import decode_inputs, range_reading
from jobs.edge.tasks.decode import DecodeTask
from jobs.edge.tasks.decode_inputs import SourceRules
from jobs.edge.tasks.range_reading import RangeReader
from schemas.spec.file import load_spec
from tests.support.faults.bad_messages import COLUMNS, good_message, kinds
from tests.support.message_scans import (
    DEBEZIUM_TYPES,
    MYSQL_TYPES,
    ROW,
    TYPES,
    USUAL_MESSAGES,
    canal_message,
    mutate,
)
from tests.support.sampling import quick

SPEC: dict[str, Any] = {
    "name": "items",
    "source": {"topic": "items", "database": "shop", "table": "items"},
    "columns": COLUMNS,
    "query": "SELECT name, COUNT(*) AS n, SUM(cnt) AS s FROM items GROUP BY name",
    "watermark": {"future_skew": "5 min"},
}
HORIZON_MS = 1_800_000_000_000
RECORDS = 2_000
AT_ONCE = 1_700  # more than one piece


def messages(dice: random.Random, count: int, unusual: float) -> list[Message]:
    """Return good messages; a part is bad, empty, of another table, or later than allowed."""
    known = list(kinds())
    found = []
    for offset in range(count):
        value: bytes | None = good_message(offset)
        assert value is not None
        if dice.random() < unusual:
            change = dice.randrange(4)
            if change == 0:
                value = dice.choice(known)[1](value)
            elif change == 1:
                value = value.replace(b'"items"', b'"others"')
            elif change == 2:
                value = value.replace(b'"es": 17', b'"es": 19').replace(b"2026-01", b"2099-01")
            else:
                value = None
        stamp = (TIMESTAMP_CREATE_TIME, HORIZON_MS)
        found.append(
            Message(topic="items", partition=0, offset=offset, value=value, timestamp=stamp)
        )
    return found


def read(root: Path, records: list[Message], spec: dict[str, Any]) -> tuple[Any, ...]:
    """Return what a reader made of the records: its report, its rows, its rejects."""
    loaded = load_spec(spec)
    plan = plan_of(loaded)
    task = DecodeTask(
        plan,
        SourceRules.of(loaded, plan),
        {},
        (OffsetRange("items", 0, 0, len(records)),),
        root,
        EpochAttempt(1, "uuid"),
        horizons={loaded.source.topics[0]: HORIZON_MS},
    )
    reader = RangeReader(task, 0, "m0-0")
    for start in range(0, len(records), AT_ONCE):
        reader.take(Records.of(records[start : start + AT_ONCE]))
    reader.finish()
    rows = reader.signed_rows.concatenate()
    rejects = [
        pq.ParquetFile(root / file.path).read().to_pylist() for file in reader.report.quarantine
    ]
    report = comparable_report(reader)
    return (report, [column.to_pylist() for column in rows.columns], rows.signs.tolist(), rejects)


def comparable_report(reader: RangeReader) -> dict[str, Any]:
    """Return the report without what differs: times, and the number of scanned messages."""
    report = {name: getattr(reader.report, name) for name in reader.report.__struct_fields__}
    del report["quarantine"], report["seconds"], report["scanned"]
    return report


def test_the_report_has_the_time_at_which_the_first_record_was_appended(tmp_path: Path) -> None:
    stamps = [(TIMESTAMP_CREATE_TIME, 7_000), (TIMESTAMP_CREATE_TIME, 6_000)]
    records = [
        Message(topic="items", partition=0, offset=offset, value=good_message(offset), timestamp=at)
        for offset, at in enumerate(stamps)
    ]
    assert read(tmp_path, records, SPEC)[0]["appended_ms"] == 7_000
    nameless = Message(topic="items", partition=0, offset=0, value=good_message(0))
    assert read(tmp_path, [nameless, *records], SPEC)[0]["appended_ms"] is None


def repeating(sent: list[tuple[int, int, int]]) -> list[Message]:
    """Return messages with these numbers, times and rows; one has an escaped key."""
    found = []
    for offset, (number, es, row) in enumerate(sent):
        message = json.loads(good_message(row) or b"")
        message |= {"id": number, "es": 1_700_000_000_000 + 1_000 * es, "ts": offset}
        value = json.dumps(message)
        if offset == 3:  # an escaped key
            value = value.replace('"id"', '"\\u0069d"')
        found.append(Message(topic="items", partition=0, offset=offset, value=value.encode()))
    return found


@pytest.mark.parametrize("path", ["scanned", "one by one"])
def test_a_canal_that_starts_again_and_repeats_itself_is_noticed_on_every_path(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if path == "one by one":
        monkeypatch.setattr(range_reading, "scanner_of", lambda *_: None)
    sent = [(498, 70, 0), (499, 70, 1), (500, 71, 2), (500, 71, 3), (501, 71, 4)]
    again = [*sent, (1, 70, 1), (2, 71, 2), (3, 71, 3), (4, 71, 4), (4, 72, 5), (5, 75, 6)]
    order = read(tmp_path, repeating(again), SPEC)[0]["order"]
    assert (order.first, order.repeats, order.repeats_from) == (0, 1, 5)
    memory = order.memory
    assert (memory.offset, memory.id, memory.es) == (10, 5, 1_700_000_075_000)
    goes_on = [*sent, (1, 71, 5), (2, 72, 6), (3, 73, 7), (4, 73, 8), (4, 73, 9), (5, 75, 10)]
    assert read(tmp_path, repeating(goes_on), SPEC)[0]["order"].repeats == 0


def debezium_message(row: int, seconds: int, sent_ms: int) -> dict[str, Any]:
    source = {"db": "shop", "table": "items", "ts_ms": seconds * 1_000, "pos": 4 + row, "row": 0}
    after = {"name": f"n{row}", "cnt": row}
    return {"before": None, "after": after, "op": "c", "source": source, "ts_ms": sent_ms}


def maxwell_message(row: int, seconds: int, _: int) -> dict[str, Any]:
    names = {"database": "shop", "table": "items", "type": "insert", "xid": row, "commit": True}
    return names | {"ts": seconds, "data": {"name": f"n{row}", "cnt": row}}


@pytest.mark.parametrize("path", ["scanned", "one by one"])
@pytest.mark.parametrize(
    ("format", "message"), [("debezium-json", debezium_message), ("maxwell-json", maxwell_message)]
)
def test_a_source_without_numbers_that_repeats_itself_is_noticed_on_every_path(
    format: str, message: Any, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if path == "one by one":
        monkeypatch.setattr(range_reading, "scanner_of", lambda *_: None)
    spec = SPEC | {
        "source": SPEC["source"] | {"format": format},
        "columns": {"name": "STRING", "cnt": "INT"},
    }
    once = [(row, 1_700_000_000 + row) for row in range(10)]
    for sent, repeats in ((once + once[4:], 1), ([*once, (10, once[4][1]), (11, once[9][1])], 0)):
        values = [json.dumps(message(*each, at)).encode() for at, each in enumerate(sent, 1_000)]
        records = [
            Message(topic="items", partition=0, offset=offset, value=value)
            for offset, value in enumerate(values)
        ]
        order = read(tmp_path, records, spec)[0]["order"]
        assert (order.repeats, order.repeats_from) == (repeats, 10 if repeats else None)


def test_a_truncate_stops_the_job_or_is_refused_and_every_message_is_counted(
    tmp_path: Path,
) -> None:
    text = b'{"type": "TRUNCATE", "database": "shop", "table": "items", "sql": "truncate items"}'
    values = (good_message(0), text, text.replace(b'"items"', b'"others"'))
    records = [
        Message(topic="items", partition=0, offset=offset, value=value)
        for offset, value in enumerate(values)
    ]
    stopping = read(tmp_path, records, SPEC)[0]
    assert stopping["truncated"].startswith("truncate items (topic items, partition 0, offset 1)")
    assert (stopping["decoded"], stopping["skipped"], stopping["filtered"]) == (1, 1, 1)
    refusing = read(tmp_path, records, SPEC | {"on_truncate": "quarantine"})
    assert refusing[0]["truncated"] is None
    assert (refusing[0]["quarantined"], refusing[0]["skipped"]) == (1, 0)
    assert refusing[3][0][0]["raw"] == text


DEDUPE = {"primary_key": ["id"], "dedupe": "pk", "on_truncate": "apply"}


def test_a_truncate_to_apply_is_reported_with_its_time_and_the_rows_before_it(
    tmp_path: Path,
) -> None:
    text = json.dumps(
        {"type": "TRUNCATE", "database": "shop", "table": "items", "es": 5_000, "ts": 5_700}
    )
    values = (good_message(0), good_message(1), text.encode(), good_message(2))
    records = [
        Message(topic="items", partition=3, offset=offset, value=value)
        for offset, value in enumerate(values)
    ]
    report = read(tmp_path, records, SPEC | DEDUPE)[0]
    (found,) = report["truncations"]
    rows_before = len(read(tmp_path, records[:2], SPEC | DEDUPE)[2])
    assert (found.time, found.until, found.position) == (5_000, 5_700, rows_before)
    assert (report["truncated"], report["decoded"], report["skipped"]) == (None, 3, 1)
    untimed = Message(
        topic="items", partition=0, offset=9, value=text.replace('"es"', '"at"').encode()
    )
    report = read(tmp_path, [records[0], untimed], SPEC | DEDUPE)[0]
    assert "has no time" in report["truncated"] and not report["truncations"]


WATERMARKS: dict[str, dict[str, Any]] = {
    "es": {"time": "es", "future_skew": "5 min"},
    "ts": {"time": "ts", "future_skew": "5 min"},
    "kafka": {"time": "kafka", "future_skew": "5 min"},
    "a column": {"time": {"column": "at"}, "future_skew": "5 min"},
    "ingestion": {"time": "ingestion"},
}


@pytest.mark.parametrize(
    ("unusual", "time"),
    quick(
        product([0.0, 0.02, 0.1, 0.6], WATERMARKS),
        [(0.0, "es"), (0.02, "ingestion"), (0.1, "a column"), (0.6, "kafka")],
    ),
)
def test_a_range_is_read_the_same_with_and_without_the_scanner(
    unusual: float, time: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = SPEC | {"watermark": WATERMARKS[time]}
    records = messages(random.Random(f"{unusual} {time}"), RECORDS, unusual)
    scanned = read(tmp_path / "scanned", records, spec)
    monkeypatch.setattr(range_reading, "scanner_of", lambda *_: None)
    assert scanned == read(tmp_path / "decoded", records, spec)
    report = scanned[0]
    assert report["read"] == RECORDS
    assert (report["quarantined"] > 0) == (unusual > 0)


@pytest.mark.parametrize("time", quick(["es", "ts"], ["es"]))
@pytest.mark.parametrize(
    ("source_format", "columns"), [("debezium", DEBEZIUM_TYPES), ("maxwell", TYPES)]
)
def test_other_formats_are_read_the_same_with_and_without_the_scanner(
    source_format: str,
    columns: dict[str, str],
    time: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = SPEC | {
        "source": {"topic": "items", "format": f"{source_format}-json", "table": "product"},
        "columns": {name: kind for name, kind in columns.items() if name.isascii()},
        "watermark": WATERMARKS[time],
    }
    dice, usual = random.Random(source_format), USUAL_MESSAGES[source_format]
    records = []
    for offset in range(RECORDS):
        value = dice.choice(usual) if dice.random() < 0.98 else mutate(dice, usual)
        records.append(Message(topic="items", partition=0, offset=offset, value=value))
    scanned = read(tmp_path / "scanned", records, spec)
    monkeypatch.setattr(range_reading, "scanner_of", lambda *_: None)
    assert scanned == read(tmp_path / "decoded", records, spec)
    assert scanned[0]["decoded"] > 0.97 * RECORDS


@pytest.mark.parametrize("labelled", quick([0.02, 0.5, 1.0], [0.5]))
def test_labels_are_read_the_same_with_and_without_the_scanner(
    labelled: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    types = {name: kind for name, kind in TYPES.items() if name.isascii()}
    spec = SPEC | {"source": {"topic": "items"}, "columns": types, "watermark": WATERMARKS["es"]}
    dice = random.Random(7)
    records = []
    for offset in range(RECORDS):
        lists = {"name": "enum('new','paid')"} if dice.random() < labelled else {}
        value = canal_message(
            type="UPDATE",
            data=[ROW | {"name": dice.choice(["1", "2", "text", None])}],
            old=[{"name": dice.choice(["1", "2", ""])}],
            mysqlType=MYSQL_TYPES | lists,
        )
        records.append(Message(topic="items", partition=0, offset=offset, value=value))
    scanned = read(tmp_path / "scanned", records, spec)
    monkeypatch.setattr(range_reading, "scanner_of", lambda *_: None)
    assert scanned == read(tmp_path / "decoded", records, spec)
    assert scanned[0]["decoded"] == RECORDS
    assert {"new", "paid"} <= {value for column in scanned[1] for value in column if value}


@pytest.mark.parametrize("table", [None, "items_.*"])
def test_metadata_is_read_the_same_with_and_without_the_scanner(
    table: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    types = {name: kind for name, kind in TYPES.items() if name.isascii()}
    spec = SPEC | {
        "source": {"topic": "items", "table": table} if table else {"topic": "items"},
        "columns": types,
        "query": "SELECT __table, __database, SUM(cnt) AS s FROM t GROUP BY __table, __database",
        "watermark": WATERMARKS["es"],
    }
    dice = random.Random(3)
    records = []
    for offset in range(RECORDS):
        names = {"table": dice.choice(["items_1", "items_2", "größe"]), "database": "shop"}
        value = canal_message(type="UPDATE", old=[{"cnt": "7"}], **names)
        if dice.random() < 0.02:
            value = dice.choice([b"{", value.replace(b'"items_1"', b"7"), canal_message()])
        records.append(Message(topic="items", partition=0, offset=offset, value=value))
    scanned = read(tmp_path / "scanned", records, spec)
    monkeypatch.setattr(range_reading, "scanner_of", lambda *_: None)
    assert scanned == read(tmp_path / "decoded", records, spec)
    assert scanned[0]["quarantined"] > 0
    assert {"items_1", "items_2"} <= set(scanned[1][-1])


def test_texts_with_a_replacement_character_are_counted_in_every_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["Z\ufffdrich", "Zürich", "日本\uff0c", "", None, "\ufffd\ufffd"]
    values = [canal_message(data=[ROW | {"name": name}]) for name in names]
    values.append(canal_message(type="UPDATE", old=[{"name": "K\ufffdln"}]))
    values.append(canal_message(data=[ROW], undeclared="\ufffd"))
    values.append(values[0].replace("\ufffd".encode(), b"\\ufffd"))
    types = {name: kind for name, kind in TYPES.items() if name.isascii()}
    spec = SPEC | {"source": {"topic": "items"}, "columns": types, "watermark": WATERMARKS["es"]}
    records = [
        Message(topic="items", partition=0, offset=offset, value=value)
        for offset, value in enumerate(values)
    ]
    assert read(tmp_path / "scanned", records, spec)[0]["damaged_texts"] == 4
    monkeypatch.setattr(range_reading, "scanner_of", lambda *_: None)
    assert read(tmp_path / "together", records, spec)[0]["damaged_texts"] == 4
    records.append(Message(topic="items", partition=0, offset=len(records), value=b"{"))
    report = read(tmp_path / "alone", records, spec)[0]
    assert (report["damaged_texts"], report["quarantined"]) == (4, 1)


def test_the_scanner_takes_most_of_a_usual_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_by_one: list[Record] = []
    decode_each = decode_inputs.decode_each

    def count(decoder: Any, records: Records) -> Any:
        one_by_one.extend(records)
        return decode_each(decoder, records)

    monkeypatch.setattr(range_reading, "decode_each", count)
    read(tmp_path, messages(random.Random(1), RECORDS, 0.02), SPEC)
    assert RECORDS / 200 < len(one_by_one) < RECORDS / 33
