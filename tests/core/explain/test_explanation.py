"""The state of a group as numbers for people."""

from __future__ import annotations

import pytest
from msgspec import UNSET

from jobs.core.aggregates import FUNCTIONS, accumulators_of
from jobs.core.explain.explanation import list_epochs
from jobs.core.fold.in_memory import Bundle, MemoryFold
from jobs.core.plan.typing_rules import TypeProblem
from jobs.core.rows.projection import row_projection
from jobs.core.sql.select import parse_query
from schemas.documents.explanation import Change
from schemas.types.sql_types import BOOLEAN, DOUBLE, INT, STRING, decimal, row_of
from tests.support.epoch_rows import epoch_row

COLUMNS = {"v": INT, "w": DOUBLE, "d": decimal(5, 2), "s": STRING, "f": BOOLEAN}


@pytest.mark.parametrize(
    ("call", "values", "wanted"),
    [
        ("SUM(v)", [3, 3, 4], {"sum": 10, "count": 3}),
        ("SUM(DISTINCT v)", [3, 3, 4], {"distinct_sum": 7, "distinct_count": 2}),
        ("COUNT(DISTINCT s)", ["a", "a"], {"distinct_count": 1}),
        ("VAR_POP(v)", [3, 4], {"sum": 7, "sum_of_squares": 25, "count": 2}),
        ("STDDEV(d)", [150, 50], {"sum": "2.00", "sum_of_squares": "2.5000", "count": 2}),
        (
            "STDDEV(w)",
            [1.5, -0.5],
            {
                "sum": 1.0,
                "nan": 0,
                "infinity": 0,
                "-infinity": 0,
                "sum_of_squares": 2.5,
                "count": 2,
            },
        ),
        ("BOOL_AND(f)", [True, False, True], {"true": 2, "count": 3}),
        ("MEDIAN(v)", [3, 3, 9], {"present": 3}),
        ("MODE(s)", ["a"], {}),
    ],
)
def test_the_cells_of_an_aggregate_are_shown_by_name(
    call: str, values: list[object], wanted: dict[str, object]
) -> None:
    plan = parse_query(f"SELECT {call} AS r FROM t", COLUMNS)
    projection = row_projection(plan)
    assert projection is not None
    memory_fold, bundle = MemoryFold(plan, projection), Bundle()
    bundle.add(0, 0, [(1, (value,)) for value in values])  # type: ignore[misc]
    memory_fold.fold(bundle.consolidate())
    (group,) = memory_fold.state.groups([()])
    assert group is not None
    found: dict[str, object] = {}
    at = 1
    for accumulator in memory_fold.program.arguments[0]:
        cells = group.cells[at : at + len(accumulator.cells)]
        at += len(accumulator.cells)
        found |= accumulator.describe(cells)
    assert found == wanted


def test_every_cell_has_a_name_to_be_shown_under() -> None:
    """A new accumulator must name its cells."""
    for function in FUNCTIONS.values():
        for number in (INT, DOUBLE, decimal(5, 2)):
            kind = row_of(number, number) if function.is_of_pairs else number
            try:
                function.result(kind)
            except TypeProblem:
                continue
            for distinct in (False, True):
                for accumulator in accumulators_of(function, "x", kind, distinct=distinct):
                    shown = accumulator.describe((0,) * len(accumulator.cells))
                    assert len(shown) == len(accumulator.cells)


def test_an_epoch_of_a_snapshot_names_its_part_instead_of_offsets() -> None:
    part = {"source": "orders", "part": 2, "parts": 8, "rows": 10}
    rows = {n: epoch_row(n, offsets={"t": {"0": 5}}) for n in range(3)}
    rows[2] = epoch_row(2, offsets={"t": {"0": 5}}, counters={"snapshot_part": part})
    first, second = list_epochs([Change("+I", 1, 0, {}), Change("+I", 2, 0, {})], rows)
    assert (first.snapshot, second.snapshot) == (UNSET, "snapshot of orders, part 2 of 8")
    assert second.offsets == {}
