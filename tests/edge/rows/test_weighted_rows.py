"""Parcels: rows that nobody evaluates come to their fold task as the projection would bring them.

rows of all types ──► parcels, one value a fold task ──► unpacked: each row once, in its bucket
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from jobs.core.homes import Placement
from jobs.core.plan.bucket import bucket_of
from jobs.core.plan.tree import Plan
from jobs.core.rows.consolidate import WeightedRows, plain_indexes
from jobs.core.sql.select import parse_query
from jobs.core.values.change import Value
from jobs.edge.rows import weighted_rows
from jobs.edge.rows.range_rows import RangeRows
from jobs.edge.rows.weighted_rows import (
    BUCKET,
    POSITION,
    WEIGHT,
    Parcel,
    pack_rows,
    parcelling_of,
    report_parcel,
    take_parcels,
    unpack_parcels,
)
from schemas.types.arrow_values import from_arrow, to_arrow
from schemas.types.sql_types import SqlType
from tests.support.jobs.parcels import sort_parcels

BUCKETS = 4_096
VALUES: dict[str, list[Value]] = {
    "STRING": ["a", "", "é\u0000b", None],
    "BOOLEAN": [True, False, None, True],
    "TINYINT": [-128, 127, 0, None],
    "BIGINT": [-(2**63), 2**63 - 1, 0, None],
    "DECIMAL(10, 2)": [150, -5, 0, None],
    "DECIMAL(38, 20)": [10**38 - 1, -1, 0, None],
    "DECIMAL(38, 0)": [-(10**38) + 1, 10, 0, None],
    "FLOAT": [0.10000000149011612, math.nan, -math.inf, 2.0**-149],
    "DOUBLE": [0.1, 5e-324, 0.0, -1.7976931348623157e308],
    "DATE": [18_395, -719_162, 0, None],
    "TIME": ["12:38:35", "00:00:00", None, "23:59:59"],
    "TIMESTAMP(3)": [1_589_373_515_477_000, -1_000, 0, None],
    "TIMESTAMP_LTZ(6)": [1_589_373_515_477_001, -1, 0, None],
    "TIMESTAMP(9)": ["2020-05-13 12:38:35.123456789", None, None, None],
    "BINARY": [b"\x00\xff", b"", b"\x01", None],
}


TYPES = {f"c{i}": SqlType.parse(name) for i, name in enumerate(VALUES)}
COLUMNS = [to_arrow(values, TYPES[f"c{i}"]) for i, values in enumerate(VALUES.values())]
ROWS = len(COLUMNS[0])


def parcelled(group: list[str], targets: int) -> tuple[Plan, list[Parcel]]:
    """All rows but the last one, the first of them as a head of weight -1."""
    keys = ", ".join(group)
    least = "".join(f", MIN({name}) AS m{name}" for name in TYPES)
    plan = parse_query(
        f"SELECT {keys}{', ' * bool(keys)}COUNT(*) AS n{least} FROM t"
        + f" GROUP BY {keys}" * bool(keys),
        TYPES,
    )
    made = parcelling_of(plan, BUCKETS, Placement(targets), with_heads=True)
    names = [column.name for column in plan.used]
    columns = [COLUMNS[int(name[1:])] for name in names]
    places = np.array([1, 2, 0])
    weighted = WeightedRows(places, np.array([11, 12, ~10]), np.array([1, 5, -1]))
    return plan, list(made.parcels(RangeRows(columns, np.ones(ROWS, np.int64)), weighted))


@pytest.mark.parametrize("targets", [1, 3])
@pytest.mark.parametrize("group", [[], *([name] for name in TYPES), list(TYPES)], ids="-".join)
def test_each_row_comes_once_to_the_task_of_its_bucket(group: list[str], targets: int) -> None:
    plan, parcels = parcelled(group, targets)
    assert {parcel.reader for parcel in parcels} == {0}
    arrived: dict[int, tuple[int, ...]] = {}
    for target in range(targets):
        rows = unpack_parcels(parcel for parcel in parcels if parcel.target == target)
        if not rows.num_rows:
            continue
        keys = _tuples(rows, "g", [TYPES[name] for name in group])
        values = _tuples(rows, "a", [each.type for each in plan.arguments])
        told = zip(*(rows[name].to_pylist() for name in (BUCKET, POSITION, WEIGHT)), strict=True)
        for key, value, (bucket, position, weight) in zip(keys, values, told, strict=True):
            place = (position if position >= 0 else ~position) - 10
            assert key == tuple(_value(name, place) for name in group)
            assert value == tuple(
                _value(each.expression.name, place)  # type: ignore[union-attr]
                for each in plan.arguments
            )
            assert bucket == bucket_of(key, [TYPES[name] for name in group], BUCKETS)
            assert bucket % targets == target
            arrived[place] = (position, weight)
    assert arrived == {0: (~10, -1), 1: (11, 1), 2: (12, 5)}


def test_a_parcel_is_never_larger_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weighted_rows, "PARCEL_BYTES_MAX", 1)
    _, parcels = parcelled(["c0"], 1)
    assert len(parcels) == 3  # a row in each
    assert sorted(unpack_parcels(parcels)[WEIGHT].to_pylist()) == [-1, 1, 5]


def test_parcels_are_bounded_by_what_they_become() -> None:
    """They are compressed; a task holds their rows."""
    texts = pa.array(["x" * 10_000] * 20)
    parcel = pack_rows(0, 0, pa.RecordBatch.from_pydict({"a0": texts}))
    assert len(parcel.content) < 10_000
    assert take_parcels([parcel], 150_000) is None
    assert take_parcels([parcel, report_parcel(b"told")], 250_000) is not None


def test_a_report_travels_with_them() -> None:
    rows = pack_rows(3, 0, pa.RecordBatch.from_pydict({"a0": [1]}))
    sent = sort_parcels([report_parcel(b"told"), rows])
    assert [parcel.content for parcel in sent[None]] == [b"told"]
    assert unpack_parcels(sent[3]).to_pylist() == [{"a0": 1}]


@pytest.mark.parametrize(
    ("query", "plain"),
    [
        ("SELECT c0, COUNT(*) AS n FROM t GROUP BY c0", ((0,), ())),
        ("SELECT SUM(c3) AS s FROM t", ((), (0,))),
        ("SELECT c2, MAX(c0) AS a, SUM(c2) AS b FROM t GROUP BY c2", ((1,), (0, 1))),
        ("SELECT c0, SUM(c2) AS s FROM t GROUP BY c0 HAVING SUM(c2) > 3", ((0,), (1,))),
        ("SELECT c0, COUNT(*) AS n FROM t WHERE c2 > 1 GROUP BY c0", None),
        ("SELECT c0, SUM(c2 + 1) AS s FROM t GROUP BY c0", None),
        ("SELECT UPPER(c0) AS u, COUNT(*) AS n FROM t GROUP BY UPPER(c0)", None),
        ("SELECT c0, c1, COUNT(*) AS n FROM t GROUP BY ROLLUP (c0, c1)", None),
    ],
)
def test_which_queries_send_their_rows_unevaluated(query: str, plain: Any) -> None:
    assert plain_indexes(parse_query(query, TYPES)) == plain


def _tuples(rows: pa.Table, letter: str, types: list[SqlType]) -> list[tuple[Any, ...]]:
    columns = [from_arrow(rows[f"{letter}{i}"], kind) for i, kind in enumerate(types)]
    return list(zip(*columns, strict=True)) if columns else [()] * rows.num_rows


def _value(name: str, place: int) -> Any:
    column = COLUMNS[int(name[1:])].slice(place, 1)
    return from_arrow(column, TYPES[name])[0]
