"""An arrangement is the multiset of all rows that were added, whatever their hashes are."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.edge.rows import arranged_rows
from jobs.edge.rows.arranged_rows import Arrangement, JoinKeys, KeyedRows, Run
from jobs.edge.rows.packed_rows import canonical
from jobs.edge.rows.row_codes import equal_rows, hash_rows
from schemas import limits
from tests.support.examples import scale

Row = tuple[int, str | None, float | None]  # the key, then the columns
KEYS, TEXTS, FLOATS = range(3), (None, "", "x", "x" * 100), (None, 0.0, -0.0, math.nan, 1.5)
ROWS = st.tuples(st.sampled_from(KEYS), st.sampled_from(TEXTS), st.sampled_from(FLOATS))
EPOCHS = st.lists(st.lists(st.tuples(ROWS, st.integers(-2, 3)), max_size=12), max_size=8)


def keyed(changes: Sequence[tuple[Row, int]]) -> KeyedRows:
    keys, texts, floats = list(zip(*(row for row, _ in changes), strict=True)) or [(), (), ()]
    columns = [pa.array(texts, pa.string()), canonical(pa.array(floats, pa.float64()))]
    weights = np.array([weight for _, weight in changes], np.int64)
    rows, _ = KeyedRows([pa.array(keys, pa.int32())], columns, weights).consolidate()
    return rows


def plain(row: tuple[Any, ...]) -> tuple[object, ...]:
    """Equal floats as equal values: NaN is one, and zero has no sign."""
    return tuple("NaN" if value != value else value for value in row)


def found(rows: Arrangement, keys: Sequence[int], rows_max: int) -> Counter[tuple[object, ...]]:
    wanted = JoinKeys.of([pa.array(keys, pa.int32())], len(keys))
    counted: Counter[tuple[object, ...]] = Counter()
    for piece in rows.find(wanted, np.arange(len(keys)), rows_max):
        assert 0 <= len(piece.weights) <= rows_max
        assert [column.type for column in piece.columns] == [pa.string(), pa.float64()]
        values = zip(*(column.to_pylist() for column in piece.columns), strict=True)
        for number, weight, row in zip(piece.numbers, piece.weights.tolist(), values, strict=True):
            counted[plain((keys[number], *row))] += weight
    return Counter({row: weight for row, weight in counted.items() if weight})


@pytest.mark.parametrize("bits", [64, 1, 0], ids=["whole hashes", "one bit", "all collide"])
@given(
    epochs=EPOCHS, rows_max=st.sampled_from([1, 3, 100]), bytes_max=st.sampled_from([9, 2**31 - 1])
)
@settings(max_examples=scale(30))
def test_the_rows_of_a_key_are_those_that_were_added(
    bits: int, epochs: list[list[tuple[Row, int]]], rows_max: int, bytes_max: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "ARRAY_TEXT_BYTES_MAX", bytes_max)  # some runs then have wide offsets
        if bits < 64:
            patch.setattr(arranged_rows, "_KEY", np.uint64(bits << 63))
            patch.setattr(arranged_rows, "_REST_BITS", np.uint64(63))
        rows, truth = Arrangement(), Counter[tuple[object, ...]]()
        for epoch in epochs:
            run = Run.of(keyed(epoch))
            weights = rows.weigh_rows(run)
            columns = [*run.rows.keys, *run.rows.columns]
            rows_of_run = zip(*(column.to_pylist() for column in columns), strict=True)
            for weight, row in zip(weights.tolist(), rows_of_run, strict=True):
                assert truth[plain(row)] == weight
            rows = rows.add(run)
            for row, weight in epoch:
                truth[plain(row)] += weight
        truth = Counter({row: weight for row, weight in truth.items() if weight})
        assert found(rows, KEYS, rows_max) == truth
        wanted = JoinKeys.of([pa.array(KEYS, pa.int32())], len(KEYS))
        sums = rows.weigh_keys(wanted, np.arange(len(KEYS)))
        assert sums.tolist() == [sum(w for row, w in truth.items() if row[0] == k) for k in KEYS]
        assert (rows.count_rows(wanted, np.arange(len(KEYS))) >= 0).all()


def test_runs_get_larger_towards_the_first_so_that_there_are_few() -> None:
    rows = Arrangement()
    for number in range(200):
        rows = rows.add(Run.of(keyed([((number % 3, str(number), None), 1)])))
    assert sum(map(len, rows.runs)) == 200
    assert len(rows.runs) <= 8


@pytest.mark.parametrize(
    "kind",
    [pa.int8(), pa.uint64(), pa.decimal128(38, 9), pa.bool_(), pa.timestamp("us"), pa.date32()],
    ids=str,
)
def test_equal_rows_have_equal_hashes_and_others_nearly_always_others(kind: pa.DataType) -> None:
    values = pa.array([0, 1, 1, None, None, 0], pa.int8())
    moments = {pa.timestamp("us"): pa.int64(), pa.date32(): pa.int32()}
    column = values.cast(moments.get(kind, kind)).cast(kind)
    hashes = hash_rows([column], 6)
    assert len(set(hashes.tolist())) == 3
    assert hashes[0] == hashes[5]
    some, others = [column.slice(0, 4)], [column.slice(2, 4)]
    assert equal_rows(some, others, 4).tolist() == [False, False, False, False]
    assert equal_rows([column], [column], 6).all()


def test_a_part_of_a_column_hashes_as_a_copy_of_it() -> None:
    texts = pa.array(["a", "", None, "a long text of several words", "b" * 64 + "c", "b" * 64])
    part = texts.slice(1, 4)
    assert (hash_rows([part], 4) == hash_rows([pa.array(part.to_pylist())], 4)).all()
    assert (hash_rows([texts], 6)[1:5] == hash_rows([part], 4)).all()


def test_long_texts_that_differ_at_their_end_have_other_hashes() -> None:
    texts = pa.array([f"{'https://shop.example/' * 5}{number:06}" for number in range(1_000)])
    assert len(set(hash_rows([texts], 1_000).tolist())) == 1_000


def test_rows_with_long_texts_come_in_pieces_of_bounded_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arranged_rows, "JOIN_BATCH_BYTES", 1_000)
    changes: list[tuple[Row, int]] = [((1, "x" * size, size), 1) for size in range(0, 1_500, 100)]
    rows, wanted = (
        Arrangement().add(Run.of(keyed(changes))),
        JoinKeys.of([pa.array([1], pa.int32())], 1),
    )
    texts = [
        piece.columns[0].to_pylist() for piece in rows.find(wanted, np.arange(1), rows_max=100)
    ]
    assert sorted(len(text) for piece in texts for text in piece) == list(range(0, 1_500, 100))
    assert all(len(piece) == 1 or sum(map(len, piece)) <= 1_000 for piece in texts)
