"""What is computed of the rows of a range once, for all views."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from jobs.core.plan.bucket import bucket_of
from jobs.edge.rows.range_rows import RangeRows
from schemas.types.sql_types import Kind, SqlType
from tests.support.examples import examples

Rows = list[tuple[str | None, int | None, int | None, int]]

STRING, BIGINT = SqlType(Kind.STRING), SqlType(Kind.BIGINT)

_texts = st.sampled_from(["a", "b", "", None])
_numbers = st.sampled_from([0, 1, -1, 2**62, None])
_rows = st.lists(st.tuples(_texts, _numbers, _numbers, st.sampled_from([1, -1])), max_size=40)


def range_rows(rows: Rows) -> RangeRows:
    texts, numbers, others, signs = (list(column) for column in zip(*rows, strict=True))
    columns = [pa.array(texts, pa.string()), pa.array(numbers, pa.int64())]
    return RangeRows([*columns, pa.array(others, pa.int64())], np.array(signs, np.int64))


@examples(100)
@given(_rows.filter(bool), st.permutations([0, 1, 2]), st.integers(0, 3))
def test_rows_have_equal_numbers_if_they_are_equal_in_the_columns(
    rows: Rows, order: list[int], count: int
) -> None:
    chosen = order[:count]
    numbers = range_rows(rows).number(chosen).tolist()
    values = [tuple(row[index] for index in chosen) for row in rows]
    for number, value in zip(numbers, values, strict=True):
        same = [at for at, each in enumerate(numbers) if each == number]
        assert same == [at for at, each in enumerate(values) if each == value]
    assert min(numbers) >= 0 and max(numbers) < len(rows)


@examples(100)
@given(_rows.filter(bool))
def test_a_view_has_the_same_answers_as_a_job_of_its_own(rows: Rows) -> None:
    together = range_rows(rows)
    for indexes in ([0, 1], [1, 0], [2, 0], [0, 1, 2]):
        own = together.select(indexes)
        alone = RangeRows(own.columns, own.signs)
        for group in (None, [0], [1, 0]):
            shared = own.consolidate_with_heads(3, group)
            single = alone.consolidate_with_heads(3, group)
            assert [each.tolist() for each in shared] == [each.tolist() for each in single]
        for keep_zeros in (False, True):
            shared = own.consolidate(3, keep_zeros=keep_zeros)
            single = alone.consolidate(3, keep_zeros=keep_zeros)
            assert [each.tolist() for each in shared] == [each.tolist() for each in single]


@examples(100)
@given(_rows.filter(bool))
def test_each_group_has_its_bucket_by_the_order_of_its_columns(rows: Rows) -> None:
    together = range_rows(rows)
    for group, types in (([0, 1], (STRING, BIGINT)), ([1, 0], (BIGINT, STRING))):
        found = together.find_buckets(group, types, 32)[together.number(group)].tolist()
        keys = [tuple(row[index] for index in group) for row in rows]
        assert found == [bucket_of(key, types, 32) for key in keys]


def test_some_of_the_rows_are_numbered_anew() -> None:
    rows = range_rows([("a", 1, 1, 1), ("b", 2, 2, -1), ("a", 1, 1, -1)])
    assert rows.number().tolist() == [0, 1, 0]
    taken = rows.take(np.array([1, 2]))
    assert taken.signs.tolist() == [-1, -1]
    assert len(set(taken.number().tolist())) == 2
