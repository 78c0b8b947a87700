"""An audit joins the topics anew: equal for every query, and a damaged view is named."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from tests.support.jobs.epochs_by_hand import ByHand
from tests.support.jobs.joined_tables import QUERIES, JoinedTables
from tests.support.jobs.shop_views import damage_results

pytestmark = [pytest.mark.spark, pytest.mark.costly("Spark SQL recomputes each of eleven joins")]
KEYED = {"primary_key": ["id"], "dedupe": "pk"}
MORE_QUERIES = [
    "SELECT w, v, p.id FROM a AS p JOIN b ON p.k = b.k "
    "QUALIFY ROW_NUMBER() OVER (PARTITION BY w ORDER BY v DESC, p.id DESC) = 1",
    "SELECT k, id, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC, id DESC) "
    "AS n FROM a) AS t WHERE n = 1 AND v > 0",
    "SELECT b.w, AVG(v) AS m, COUNT(DISTINCT x) AS d FROM a RIGHT JOIN c ON a.v = c.x "
    "JOIN b ON c.k = b.k AND (a.id < b.id OR a.id IS NULL) GROUP BY b.w",
    "SELECT w, COUNT(*) AS n FROM b WHERE k IN (SELECT k FROM a WHERE v > 1) GROUP BY w",
    "WITH p AS (SELECT k, id, v FROM a WHERE id > 0) SELECT w, COUNT_IF(COALESCE(v, 0) > 1) AS i, "
    "BIT_AND(v) AS l, BIT_XOR(v) AS x, COUNT(DISTINCT ROW(v, b.k)) AS d, "
    "FIRST(v ORDER BY p.id, v) AS f, REGR_COUNT(v, p.id) AS r, "
    "ROUND(COVAR_POP(v, p.id), 6) AS c, ROUND(KURTOSIS_POP(v), 6) AS q "
    "FROM p JOIN b ON p.k = b.k GROUP BY ALL",
]


ALL = [*QUERIES, *MORE_QUERIES]
EACH_KIND = [QUERIES[number] for number in (3, 4)] + MORE_QUERIES[:4]


@pytest.mark.parametrize(
    ("queries", "keys"),
    [
        pytest.param(EACH_KIND, KEYED, id="each kind, dedupe"),
        pytest.param(ALL, {}, id="all, rows", marks=pytest.mark.slow),
        pytest.param(ALL, KEYED, id="all, dedupe", marks=pytest.mark.slow),
    ],
)
def test_an_audit_finds_every_join_equal(
    queries: list[str], keys: dict[str, Any], by_hand: ByHand
) -> None:
    tables = JoinedTables.create(by_hand, queries, seed=4, **keys)
    for _ in range(2):
        changes = tables.change_by_id(25) if keys else tables.change(40)
        tables.send(changes, by_id=bool(keys))
        tables.job.epoch()
    assert tables.results() == tables.truth()
    reports = tables.audit()
    assert {each.verdict for each in reports.values()} == {"equal"}
    groups = {name: len(rows) for name, rows in tables.truth().items()}
    assert {name: each.groups for name, each in reports.items()} == groups
    assert all(set(each.offsets) == set(tables.job.spec.topics) for each in reports.values())


def test_a_damaged_result_and_a_damaged_side_are_differences_of_their_views_alone(
    by_hand: ByHand,
) -> None:
    queries = [QUERIES[0], QUERIES[3], QUERIES[7]]
    tables = JoinedTables.create(by_hand, queries)
    job = tables.job
    tables.send([("a", 1, (1, 1, 5)), ("b", 1, (1, 1, "x")), ("c", 1, (1, 1, 2))])
    job.epoch()
    side = next(name for name in job.pipeline.inputs.sides if name.startswith("join_a"))
    damage_results(job.place.at_view(side), "row_count")
    shutil.rmtree(job.cache.parent)
    job.restart()
    tables.send([("b", 1, (2, 1, "y"))])
    job.epoch()
    damage_results(job.place.at_view("q2"), "n")
    reports = tables.audit()
    assert {name: each.verdict for name, each in reports.items()} == {
        "q0": "different",
        "q1": "equal",
        "q2": "different",
    }
    (difference,) = reports["q0"].differences
    assert difference.group == {"w": "y"}
    assert (difference.table, difference.recomputed) == (
        {"w": "y", "n": 2, "s": 10},
        {"w": "y", "n": 1, "s": 5},
    )
    assert [each.group for each in reports["q2"].differences] == [{"x": 2}]


def test_rows_on_which_an_expression_fails_are_left_out_as_the_job_did(by_hand: ByHand) -> None:
    queries = [
        "SELECT w, SUM(12 / (v + b.id)) AS s FROM a JOIN b ON a.k = b.k GROUP BY w",
        "SELECT w, SUM(d) AS s FROM (SELECT k, 12 / v AS d FROM a) AS p JOIN b ON p.k = b.k "
        "GROUP BY w",
        "SELECT v, COUNT(*) AS n FROM a GROUP BY v",
    ]
    tables = JoinedTables.create(by_hand, queries)
    refused, failing_with_b = (1, 1, 0), (2, 1, -1)
    tables.send([("a", 1, refused), ("a", 1, failing_with_b), ("a", 1, (3, 1, 3))])
    tables.send([("b", 1, (1, 1, "x"))])
    tables.job.epoch()
    counts = tables.job.pipeline.newest.counts
    assert (counts.quarantined, counts.failing_rows) == (1, 1)
    assert {name: each.verdict for name, each in tables.audit().items()} == dict.fromkeys(
        ["q0", "q1", "q2"], "equal"
    )


def test_a_row_that_a_source_retracts_and_never_inserts_leaves_its_joins_undecided(
    by_hand: ByHand,
) -> None:
    tables = JoinedTables.create(by_hand, QUERIES[:1])
    tables.send([("a", 1, (1, 1, 5)), ("b", 1, (1, 1, "x")), ("b", -1, (2, 2, "y"))])
    tables.job.epoch()
    (report,) = tables.audit().values()
    assert (report.verdict, report.odd) == ("undecided", {"missing_rows": 1})
    assert report.doubts[0].endswith("retracts a row that is missing")
