"""The task that makes images of the rows of a snapshot, called with batches as Spark gives them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from jobs.core.formats.registry import MessageRules
from jobs.core.homes import Placement
from jobs.core.job.job_plan import plan_of
from jobs.core.plan.tree import Column
from jobs.core.values.json_values import converter
from jobs.edge.rows.snapshot_columns import SnapshotColumn, SnapshotForm, SnapshotRefused
from jobs.edge.rows.weighted_rows import (
    CHANGE_PARTITION,
    CHANGE_TIME,
    POSITION,
    Parcel,
    unpack_parcels,
)
from jobs.edge.tasks.range_report import RangeReport
from jobs.edge.tasks.snapshot import SnapshotTask, UnpackRows
from schemas.spec.file import load_spec
from schemas.types.sql_types import STRING

COLUMNS = {"id": "INT", "name": "STRING", "price": "DECIMAL(8, 2)", "at": "TIMESTAMP(3)"}
TEXT, SQL, PLAIN = SnapshotForm.SOURCE_TEXT, SnapshotForm.SQL_TEXT, SnapshotForm.AS_DECLARED


def run(
    rows: Sequence[tuple[Any, ...]], forms: Sequence[SnapshotForm], *, size: int = 2, **keys: Any
) -> tuple[list[Parcel], RangeReport]:
    document = {
        "name": "a",
        "source": {"topic": "t", "snapshot": {"csv": "/x"}, "format": "canal-json"},
        "columns": COLUMNS,
        "primary_key": ["id"],
        "dedupe": "pk",
        "query": "SELECT name, SUM(price) AS p, MAX(at) AS at FROM t GROUP BY name",
        **keys,
    }
    spec = load_spec(document)
    plan = plan_of(spec)
    columns = [SnapshotColumn(*each) for each in zip(plan.image, forms, strict=True)]
    task = SnapshotTask(plan, MessageRules.of(spec), columns, (), 8, 5, Placement(2))
    batches = [
        pa.RecordBatch.from_arrays(
            [pa.array(values) for values in zip(*rows[at : at + size], strict=True)],
            [column.name for column in plan.image],
        )
        for at in range(0, len(rows), size)
    ]
    given = [(text,) for batch in task(iter(batches)) for text in batch["parcels"].to_pylist()]
    parcels = list(UnpackRows().run(given))
    reports = [each for each in parcels if each.reader is None]
    assert len(reports) == 1
    report = msgspec.json.decode(reports[0].content, type=RangeReport)
    return [each for each in parcels if each.reader is not None], report


def image(plan_row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(plan_row[name] for name in ("name", "price", "at", "id"))


def test_rows_are_images_without_time_and_partition_in_their_order() -> None:
    at = datetime(2026, 1, 1, 10)
    rows = [("a", "1.5", "2026-01-01 10:00:00.000", str(number)) for number in range(5)]
    parcels, report = run(rows, [TEXT, TEXT, TEXT, TEXT])
    assert (report.rows, report.unreadable, report.read) == (5, None, 0)
    assert {each.reader for each in parcels} == {5}
    assert {each.target for each in parcels} <= {0, 1}
    found = unpack_parcels(parcels).sort_by(POSITION).to_pylist()
    assert [image(row) for row in found] == [("a", Decimal("1.50"), at, n) for n in range(5)]
    assert [row[POSITION] for row in found] == list(range(5))
    assert {(row[CHANGE_TIME], row[CHANGE_PARTITION]) for row in found} == {(None, None)}


def test_texts_are_those_of_the_source_or_of_sql() -> None:
    rows = [("a", "1.5", "2026-01-01T10:00:00.5", "7")]
    (parcel,), _ = run(rows, [PLAIN, TEXT, TEXT, TEXT], timestamp_format="iso")
    of_source = unpack_parcels([parcel]).to_pylist()[0]["at"]
    rows = [("a", "1.5", "2026-01-01 10:00:00.5", "7")]
    (parcel,), _ = run(rows, [PLAIN, SQL, SQL, SQL], timestamp_format="iso")
    assert unpack_parcels([parcel]).to_pylist()[0]["at"] == of_source


@pytest.mark.parametrize(
    "row, reason",
    [
        (("a", "123456789", None, "7"), "the snapshot: column price: "),
        (("a", "1", "soon", "7"), "the snapshot: column at: "),
        (("a", "1", None, "3000000000"), "the snapshot: column id: "),
        (("a", "1", None, None), "a row has no id, which is a column of primary_key"),
    ],
)
def test_a_row_that_does_not_fit_refuses_the_part(row: tuple[Any, ...], reason: str) -> None:
    good = ("a", "1", "2026-01-01 10:00:00", "1")
    _, report = run([good, row, good, good], [TEXT, TEXT, TEXT, TEXT])
    assert report.unreadable is not None
    assert reason in report.unreadable


def test_a_text_that_is_not_utf8_refuses_the_part() -> None:
    broken = pa.Array.from_buffers(
        pa.string(), 1, [None, *pa.array([b"\xff\xfe"], pa.binary()).buffers()[1:]]
    )
    column = SnapshotColumn(Column("name", STRING), TEXT)
    with pytest.raises(SnapshotRefused, match=r"column name: .*[Uu][Tt][Ff]"):
        column.read(broken, converter)
