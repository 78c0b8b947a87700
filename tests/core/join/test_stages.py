"""The joins of several views: what they share, and what they must not."""

from __future__ import annotations

from itertools import permutations

import pytest

from jobs.core.job.evolution import compare_plans
from jobs.core.join.stages import list_sides, trees_of
from jobs.core.sql.select import parse_joins
from schemas.types.sql_types import SqlType

INT, STRING = SqlType.parse("INT"), SqlType.parse("STRING")
TABLES = {"a": {"k": INT, "v": INT}, "b": {"id": INT, "k": INT, "w": STRING}}
DERIVED = "SELECT u, COUNT(*) AS n FROM a JOIN (SELECT {} FROM b) AS d ON a.k = d.k GROUP BY u"
OTHERS = {
    "a value": ("k, COALESCE(w, '?') AS u", "k, COALESCE(w, '!') AS u"),
    "the key": ("k, w AS u", "id AS k, w AS u"),
}


def views(*queries: str) -> list[tuple[str, ...]]:
    """Return which views share a tree."""
    plans = {str(i): parse_joins(sql, TABLES) for i, sql in enumerate(queries)}
    return [tree.views for tree in trees_of(plans)]


def test_views_that_read_other_columns_of_the_same_join_share_its_sides() -> None:
    joined = "FROM a JOIN (SELECT k, COALESCE(w, '?') AS u, id FROM b) AS d ON a.k = d.k"
    shared = views(f"SELECT u, COUNT(*) AS n {joined} GROUP BY u", f"SELECT SUM(id) AS n {joined}")
    assert shared == [("0", "1")]


@pytest.mark.parametrize("both", OTHERS.values(), ids=OTHERS)
def test_derived_tables_whose_columns_mean_something_else_share_nothing(
    both: tuple[str, str],
) -> None:
    one, other = (DERIVED.format(columns) for columns in both)
    assert views(one, other, one) == [("0", "2"), ("1",)]


@pytest.mark.parametrize("both", OTHERS.values(), ids=OTHERS)
def test_a_query_over_other_columns_of_a_derived_table_has_other_rows(
    both: tuple[str, str],
) -> None:
    one, other = (parse_joins(DERIVED.format(columns), TABLES) for columns in both)
    assert compare_plans(one, other, closes=False).reasons
    assert not compare_plans(one, one, closes=False).reasons


def test_trees_that_begin_with_the_same_join_have_sides_of_their_own() -> None:
    """A side is of one join: with two of one name one would get the rows of both."""
    joined = "FROM a JOIN b ON a.k = b.k"
    queries = [
        f"SELECT a.k, w, COUNT(*) AS n {joined} GROUP BY a.k, w",
        f"SELECT w, COUNT(*) AS n {joined} JOIN a AS c ON c.v = a.k GROUP BY w",
        f"SELECT w, COUNT(*) AS n {joined} LEFT JOIN a AS c ON c.v = a.k GROUP BY w",
    ]
    trees = trees_of({str(i): parse_joins(sql, TABLES) for i, sql in enumerate(queries)})
    sides = [side.name for side in list_sides(trees)]
    assert len(sides) == len(set(sides)) == 10


def test_the_order_of_the_views_means_nothing() -> None:
    """A clone may list the views in another order than the job whose sides it copies."""
    joined = "FROM a JOIN b ON a.k = b.k"
    plans = {
        "x": parse_joins(f"SELECT w, COUNT(*) AS n {joined} GROUP BY w", TABLES),
        "y": parse_joins(f"SELECT v, SUM(id) AS s {joined} GROUP BY v", TABLES),
        "z": parse_joins(DERIVED.format("id AS k, w AS u"), TABLES),
        "u": parse_joins(DERIVED.format("k, w AS u"), TABLES),
    }
    sides = {side.name for side in list_sides(trees_of(plans))}
    for names in permutations(plans):
        assert {s.name for s in list_sides(trees_of({n: plans[n] for n in names}))} == sides
