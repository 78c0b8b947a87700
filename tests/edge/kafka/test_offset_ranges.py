"""Ranges: the same offsets, however they are shared out."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from jobs.edge.kafka.offset_ranges import (
    OffsetRange,
    advance_offsets,
    count_planned_records,
    cut_ends,
    ranges_between,
    split_ranges,
)
from schemas.limits import RANGE_PIECE_RECORDS_MIN

LENGTHS = st.lists(st.integers(1, 6 * RANGE_PIECE_RECORDS_MIN), min_size=1, max_size=5)


@given(LENGTHS, st.integers(1, 8))
def test_pieces_are_the_same_offsets_in_the_same_order(lengths: list[int], tasks: int) -> None:
    ranges = tuple(OffsetRange("t", p, 7 * p, 7 * p + size) for p, size in enumerate(lengths))
    pieces = split_ranges(ranges, tasks)
    assert list(pieces) == sorted(pieces)
    assert all(piece.end > piece.start for piece in pieces)
    for each in ranges:
        mine = [piece for piece in pieces if piece.partition == each.partition]
        assert (mine[0].start, mine[-1].end) == (each.start, each.end)
        assert all(a.end == b.start for a, b in pairwise(mine))


def test_a_long_range_is_shared_out_and_short_ones_are_left_whole() -> None:
    long = OffsetRange("t", 0, 0, 10 * RANGE_PIECE_RECORDS_MIN)
    short = OffsetRange("t", 1, 5, 6)
    assert len(split_ranges((long, short), 2)) == 3
    assert split_ranges((short,), 8) == (short,)
    even = tuple(OffsetRange("t", p, 0, 125_000) for p in range(4))
    assert split_ranges(even, 2) == even


@given(st.lists(st.integers(1, 60), min_size=1, max_size=5), st.integers(1, 50))
def test_cut_again_and_again_all_offsets_are_read_once(lengths: list[int], records: int) -> None:
    starts = {"t": {str(p): 7 * p for p in range(len(lengths) - 1)}}  # the last one is new
    ends = {"t": {str(p): 7 * p + size for p, size in enumerate(lengths)}}
    read = 0
    while starts != ends:
        part = cut_ends(starts, ends, records)
        found = count_planned_records(ranges_between(starts, part))
        assert 0 < found <= records + len(lengths)
        read, starts = read + found, advance_offsets(starts, part)
    assert read == sum(lengths) + 7 * (len(lengths) - 1)


def test_ranges_lead_from_one_set_of_offsets_to_another() -> None:
    starts = {"t": {"0": 5, "1": 7}}
    ends = {"t": {"0": 9, "2": 3}, "u": {"0": 1}}
    assert ranges_between(starts, ends) == (
        OffsetRange("t", 0, 5, 9),
        OffsetRange("t", 2, 0, 3),
        OffsetRange("u", 0, 0, 1),
    )
    assert advance_offsets(starts, ends) == {"t": {"0": 9, "1": 7, "2": 3}, "u": {"0": 1}}
