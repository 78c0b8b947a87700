"""Columns rendered at once say exactly what rendering value by value says."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.core.publish.formats import CHANGELOG_JSON, FORMATS, UPSERT_JSON, EpochFacts
from jobs.core.publish.shares import EVERYTHING
from jobs.core.values.float_values import NAN
from jobs.core.values.json_values import renderer
from jobs.edge.publisher.records import (
    BrokenChangelog,
    ChangelogMissing,
    RecordWriter,
    partitions_of,
    read_epoch,
    split_rows,
)
from schemas import limits
from schemas.table.changelog import ChangelogRecord
from schemas.types.arrow_values import to_arrow
from schemas.types.sql_types import SqlType
from tests.support.examples import examples
from tests.support.tables.kafka_partition import partition_of

FACTS = EpochFacts("items", "items-changes", 7, 0, 1_000, ("k",))
MICROS = st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999)
NANOS = st.builds(
    "2020-05-13 12:38:{:02d}.{:09d}".format, st.integers(0, 59), st.integers(0, 10**9 - 1)
)
FLOATS = st.floats(allow_nan=False).map(lambda number: number + 0.0) | st.just(NAN)
FLOATS32 = st.floats(width=32, allow_nan=False).map(lambda number: number + 0.0) | st.just(NAN)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
FEW = examples(25)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "BOOLEAN": st.booleans(),
    "TINYINT": st.integers(-(2**7), 2**7 - 1),
    "SMALLINT": st.integers(-(2**15), 2**15 - 1),
    "INT": st.integers(-(2**31), 2**31 - 1),
    "BIGINT": st.integers(-(2**63), 2**63 - 1),
    "FLOAT": FLOATS32,
    "DOUBLE": FLOATS,
    "DECIMAL(10, 2)": st.integers(-(10**10) + 1, 10**10 - 1),
    "DECIMAL(38, 0)": st.integers(-(10**38) + 1, 10**38 - 1),
    "DECIMAL(38, 6)": st.integers(-(10**38) + 1, 10**38 - 1),
    "DECIMAL(38, 18)": st.integers(-(10**38) + 1, 10**38 - 1),
    "STRING": TEXT,
    "DATE": st.integers(-719_162, 2_932_896),
    "TIME": st.builds("{:02d}:{:02d}:{:02d}".format, *[st.integers(0, 23)] * 3),
    "TIMESTAMP(0)": MICROS.map(lambda micros: micros // 1_000_000 * 1_000_000),
    "TIMESTAMP(6)": MICROS,
    "TIMESTAMP(9)": NANOS,
    "TIMESTAMP_LTZ(3)": MICROS.map(lambda micros: micros // 1_000 * 1_000),
    "TIMESTAMP_LTZ(9)": NANOS,
    "BINARY": st.binary(max_size=9),
}
VALUES |= {
    f"ARRAY<{kind}>": st.lists(st.none() | VALUES[kind], max_size=4).map(tuple)
    for kind in ("INT", "DOUBLE", "STRING", "DECIMAL(38, 6)", "DATE", "BINARY")
}


def batch_of(ops: list[str], **columns: pa.Array) -> pa.RecordBatch:
    size = len(ops)
    fixed = {
        "op": pa.array(ops),
        "epoch": pa.array([7] * size, pa.int64()),
        "seq": pa.array([2**32 + n for n in range(size)], pa.int64()),
    }
    return pa.record_batch({**fixed, **columns})


def inserted(values: list[Any], sql_type: SqlType, name: str) -> list[dict[str, Any]]:
    """The values as one column of records in the named format, read back as JSON."""
    columns = [("k", sql_type)]
    writer = RecordWriter(FORMATS[name], columns, columns, 4)
    batch = batch_of(["+I"] * len(values), k=to_arrow(values, sql_type))
    return [json.loads(value or b"") for value in writer.write(batch, FACTS).values]


# From Kafka's UtilsTest.testMurmur2: signed numbers, of which the partition has all bits but one.
JAVA = {
    "21": -973932308,
    "foobar": -790332482,
    "a-little-bit-long-string": -985981536,
    "a-little-bit-longer-string": -1486304829,
    "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    "abc": 479470107,
}


def test_the_partition_of_a_key_is_that_of_javas_producer() -> None:
    keys = pa.array(JAVA, pa.string())
    assert partitions_of(keys, 1 << 31) == [number & 0x7FFFFFFF for number in JAVA.values()]


@FEW
@given(st.lists(st.text(max_size=40), max_size=30), st.integers(1, 1_000), st.integers(0, 5))
def test_many_partitions_at_once_are_those_of_each_key(
    keys: list[str], partitions: int, skipped: int
) -> None:
    expected = [partition_of(key.encode(), partitions) for key in keys]
    assert partitions_of(pa.array(keys, pa.string()), partitions) == expected
    sliced = pa.array(keys, pa.string()).slice(min(skipped, len(keys)))
    assert partitions_of(sliced, partitions) == expected[skipped:]


@pytest.mark.parametrize("kind", VALUES)
@FEW
@given(data=st.data())
def test_a_column_renders_as_its_values_do(kind: str, data: st.DataObject) -> None:
    sql_type = SqlType.read(kind)
    values = data.draw(st.lists(st.none() | VALUES[kind], min_size=1, max_size=20))
    render = renderer(sql_type)
    expected = [render(value) for value in values]
    shown = [record["row"]["k"] for record in inserted(values, sql_type, "changelog-json")]
    assert shown == expected
    assert [type(value) for value in shown] == [type(value) for value in expected]


@pytest.mark.parametrize("kind", VALUES)
@FEW
@given(data=st.data())
def test_canal_has_the_same_values_as_strings(kind: str, data: st.DataObject) -> None:
    sql_type = SqlType.read(kind)
    values = data.draw(st.lists(st.none() | VALUES[kind], min_size=1, max_size=20))
    typed = [record["row"]["k"] for record in inserted(values, sql_type, "changelog-json")]
    texts = [record["data"][0]["k"] for record in inserted(values, sql_type, "canal-json")]
    for value, text in zip(typed, texts, strict=True):
        if value is None or isinstance(value, str):
            assert text == value
        else:
            assert isinstance(text, str)
            assert json.loads(text) == value


UPDATES = ["+I", "-U", "+U", "-U", "+U", "-D", "-U", "+U"]


def updated(name: str) -> list[Any]:
    """The values made of UPDATES: both columns change, one does, the row goes, none does."""
    columns = [("k", SqlType.parse("STRING")), ("n", SqlType.parse("INT"))]
    keys = pa.array(["a", "b", None, "c", "c", "d", "e", "e"])
    numbers = pa.array([1, 2, 3, 4, 5, None, 7, 7], pa.int32())
    writer = RecordWriter(FORMATS[name], columns, columns, 4)
    records = writer.write(batch_of(UPDATES, k=keys, n=numbers), FACTS)
    return [value if value is None else json.loads(value) for value in records.values]


@pytest.mark.parametrize("name", FORMATS)
def test_shares_of_a_chunk_are_all_of_its_records(name: str) -> None:
    """Each share has the records of its partitions; a -U and its +U are in one."""
    columns = [("k", SqlType.parse("STRING")), ("n", SqlType.parse("INT"))]
    writer = RecordWriter(FORMATS[name], columns[:1], columns, 3)
    keys = ["a", "b", "b", "c", "c", "d", "e", "e"]
    batch = batch_of(UPDATES, k=pa.array(keys), n=pa.array(range(8), pa.int32()))
    whole = writer.write(batch, FACTS)
    found = []
    for share in range(4):  # the last one has no partition
        floors = [-1 if partition == share else EVERYTHING for partition in range(3)]
        part = writer.write(batch, FACTS, floors)
        assert set(part.partitions) <= {share}
        assert part.last_seq == whole.last_seq
        found += list(zip(part.seqs, part.keys, part.values, part.partitions, strict=True))
    assert sorted(found) == list(
        zip(whole.seqs, whole.keys, whole.values, whole.partitions, strict=True)
    )
    above = writer.write(batch, FACTS, [2**32 + 4] * 3)
    assert above.seqs == [seq for seq in whole.seqs if int(seq) > 2**32 + 4]


def test_a_canal_update_is_one_message_whose_old_has_the_changed_columns_only() -> None:
    images = [(value["type"], value["data"], value["old"]) for value in updated("canal-json")]
    assert images == [
        ("INSERT", [{"k": "a", "n": "1"}], None),
        ("UPDATE", [{"k": None, "n": "3"}], [{"k": "b", "n": "2"}]),
        ("UPDATE", [{"k": "c", "n": "5"}], [{"n": "4"}]),
        ("DELETE", [{"k": "d", "n": None}], None),
        ("UPDATE", [{"k": "e", "n": "7"}], [{}]),
    ]


def test_debezium_envelopes_have_both_images() -> None:
    images = [(value["op"], value["before"], value["after"]) for value in updated("debezium-json")]
    assert images == [
        ("c", None, {"k": "a", "n": 1}),
        ("u", {"k": "b", "n": 2}, {"k": None, "n": 3}),
        ("u", {"k": "c", "n": 4}, {"k": "c", "n": 5}),
        ("d", {"k": "d", "n": None}, None),
        ("u", {"k": "e", "n": 7}, {"k": "e", "n": 7}),
    ]


def test_upserts_are_the_new_row_or_a_tombstone() -> None:
    last = {"k": "e", "n": 7}
    assert updated("upsert-json") == [
        {"k": "a", "n": 1},
        {"k": None, "n": 3},
        {"k": "c", "n": 5},
        None,
        last,
    ]


def test_a_record_of_an_update_has_the_seq_of_its_second_half() -> None:
    columns = [("k", SqlType.parse("STRING"))]
    batch = batch_of(["-U", "+U", "-D"], k=pa.array(["a", "a", "b"]))
    records = RecordWriter(FORMATS["canal-json"], columns, columns, 4).write(batch, FACTS)
    assert records.seqs == [str(2**32 + n).encode() for n in (1, 2)]


def test_a_float_is_the_shortest_text_of_32_bits() -> None:
    (tenth,) = struct.unpack("<f", struct.pack("<f", 0.1))
    (record,) = inserted([tenth], SqlType.parse("FLOAT"), "canal-json")
    assert record["data"] == [{"k": "0.1"}]


def test_what_json_has_no_number_for_is_a_string() -> None:
    records = inserted([NAN, math.inf, -math.inf, 1.0], SqlType.parse("DOUBLE"), "changelog-json")
    assert [record["row"]["k"] for record in records] == ["NaN", "Infinity", "-Infinity", 1.0]


@FEW
@given(st.lists(st.none() | TEXT, min_size=1, max_size=9))
def test_keys_and_values_are_those_of_the_contract(texts: list[str | None]) -> None:
    columns = [("k", SqlType.parse("STRING")), ("größe", SqlType.parse("BIGINT"))]
    writer = RecordWriter(CHANGELOG_JSON, columns[:1], columns, 4)
    sizes = pa.array(range(len(texts)), pa.int64())
    batch = batch_of(["+I"] * len(texts), k=pa.array(texts, pa.string()), größe=sizes)
    records = writer.write(batch, FACTS)
    for n, text in enumerate(texts):
        expected = ChangelogRecord("+I", {"k": text, "größe": n}, 7, 2**32 + n)
        assert ChangelogRecord.decode(records.values[n] or b"") == expected
        assert records.keys[n] == msgspec.json.encode({"k": text})
        assert records.seqs[n] == str(2**32 + n).encode()


@pytest.mark.parametrize("kind", ["BIGINT", "TIMESTAMP(3)", "TIMESTAMP_LTZ(3)"])
def test_a_row_of_a_window_tells_its_last_millisecond(kind: str) -> None:
    end = ("window_end", SqlType.parse(kind))
    columns = [("n", SqlType.parse("BIGINT"))]
    ends = [0, 60_000, 1_767_225_660_000]
    batch = batch_of(
        ["+I", "+I", "-D"],
        n=pa.array([1, 2, 3]),
        window_end=to_arrow([each * (1 if kind == "BIGINT" else 1_000) for each in ends], end[1]),
    )
    writer = RecordWriter(CHANGELOG_JSON, [end], columns, 4, end)
    assert set(writer.columns) == {"n", "window_end"}
    records = writer.write(batch, FACTS)
    found = [ChangelogRecord.decode(value or b"") for value in records.values]
    assert [(each.row, each.time) for each in found] == [
        ({"n": 1}, -1),
        ({"n": 2}, 59_999),
        ({"n": 3}, 1_767_225_659_999),
    ]
    canal = RecordWriter(FORMATS["canal-json"], [end], columns, 4, end).write(batch, FACTS)
    assert b"time" not in (canal.values[0] or b"")


def test_a_global_aggregate_has_the_empty_object_as_key() -> None:
    writer = RecordWriter(CHANGELOG_JSON, [], [("n", SqlType.parse("BIGINT"))], 4)
    records = writer.write(batch_of(["-U", "+U"], n=pa.array([1, 2], pa.int64())), FACTS)
    assert records.keys == [b"{}", b"{}"]


def test_a_group_column_that_is_not_selected_is_in_the_key_only() -> None:
    group, output = [("k", SqlType.parse("STRING"))], [("n", SqlType.parse("BIGINT"))]
    writer = RecordWriter(UPSERT_JSON, group, output, 4)
    records = writer.write(batch_of(["+I"], k=pa.array(["a"]), n=pa.array([1], pa.int64())), FACTS)
    assert (records.keys, records.values) == ([b'{"k":"a"}'], [b'{"n":1}'])


# --- files of an epoch ------------------------------------------------------------------------


def write_file(path: Path, rows: list[tuple[str, int, int]]) -> str:
    ops, epochs, seqs = zip(*rows, strict=True)
    columns = {"op": pa.array(ops), "epoch": pa.array(epochs), "seq": pa.array(seqs)}
    pq.write_table(pa.table({**columns, "k": pa.array(map(str, seqs))}), path)
    return str(path)


def test_rows_come_in_seq_order_from_files_whose_buckets_interleave(tmp_path: Path) -> None:
    files = [
        write_file(tmp_path / "a", [("+I", 7, 1), ("+I", 7, 2), ("+I", 7, 30)]),
        write_file(tmp_path / "b", [("-U", 7, 10), ("+U", 7, 11), ("-D", 7, 40)]),
    ]
    assert read_epoch(files, 7, ["k"], -1)["k"].to_pylist() == ["1", "2", "10", "11", "30", "40"]


def test_other_epochs_and_what_is_published_already_stay_out(tmp_path: Path) -> None:
    file = write_file(tmp_path / "a", [("+I", 6, 1), ("+I", 7, 1), ("+I", 7, 2), ("+I", 8, 1)])
    assert read_epoch([file], 7, ["k"], 1)["seq"].to_pylist() == [2]


def test_an_epoch_without_files_has_no_rows() -> None:
    assert list(split_rows(read_epoch([], 7, ["k"], -1))) == []


def test_rows_that_the_epoch_had_and_the_files_lack_are_missed(tmp_path: Path) -> None:
    file = write_file(tmp_path / "a", [("+I", 6, 1), ("+I", 7, 1), ("+I", 7, 2)])
    assert read_epoch([file], 7, ["k"], 1, 2).num_rows == 1  # one is published already
    for files, found in (([file], 2), ([], 0)):
        with pytest.raises(ChangelogMissing, match=f"has 3 changelog rows .* only {found} of them"):
            read_epoch(files, 7, ["k"], -1, 3)


def test_a_seq_that_occurs_twice_is_refused(tmp_path: Path) -> None:
    files = [write_file(tmp_path / name, [("+I", 7, 1)]) for name in "ab"]
    with pytest.raises(BrokenChangelog, match="same seq"):
        read_epoch(files, 7, ["k"], -1)


@pytest.mark.parametrize("ops", [["-U"], ["+U"], ["-U", "-U", "+U"], ["-U", "+I", "+U"]])
def test_an_update_without_its_other_half_is_refused(ops: list[str]) -> None:
    with pytest.raises(BrokenChangelog, match="-U"):
        list(split_rows(pa.Table.from_batches([batch_of(ops)])))


@FEW
@given(st.lists(st.sampled_from([["+I"], ["-D"], ["-U", "+U"]]), max_size=20), st.integers(1, 5))
def test_chunks_lose_nothing_and_never_part_an_update(groups: list[list[str]], most: int) -> None:
    ops = [op for group in groups for op in group]
    chunks = [batch_of([op]) for op in ops] or [batch_of([])]  # as a column beyond 2 GiB has
    parts = list(split_rows(pa.Table.from_batches(chunks), most))
    assert [op for part in parts for op in part["op"].to_pylist()] == ops
    for part in parts:
        assert part["op"][0].as_py() != "+U"
        assert part.num_rows <= most + 1


def test_rows_of_giant_texts_come_in_smaller_chunks() -> None:
    text = "x" * (limits.PUBLISH_CHUNK_BYTES_MAX // 4)
    batch = batch_of(["+I"] * 16, k=pa.array([text] * 16))
    sizes = [part.num_rows for part in split_rows(pa.Table.from_batches([batch]))]
    assert sum(sizes) == 16
    assert max(sizes) <= 4
