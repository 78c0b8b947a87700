"""An explanation of a group over a join has the rows of both sides, and the offsets of all."""

from __future__ import annotations

from collections import Counter

from jobs.edge.table.reading import TableReader
from schemas.documents.explanation import Explained
from tests.support.jobs.epochs_by_hand import ByHand
from tests.support.jobs.joined_tables import JoinedTables, TableRow

QUERIES = [
    "SELECT a.v, SUM(c.x) AS s, MAX(c.x) AS m FROM a JOIN c ON a.k = c.k GROUP BY a.v",
    "SELECT x, COUNT(*) AS n FROM a LEFT JOIN c ON a.k = c.k AND c.id > 2 GROUP BY x",
    "SELECT SUM(v) AS s FROM a WHERE EXISTS (SELECT 1 FROM c WHERE c.k = a.k)",
    "SELECT w, COUNT(*) AS n FROM a JOIN c ON a.k = c.k JOIN b ON b.k = c.x GROUP BY w",
]


def joined_rows(found: Explained, *names: str) -> Counter[TableRow]:
    """Return some values of each joined row; those of a side that it lacks are missing."""
    assert isinstance(found.joined, list)
    rows = Counter[TableRow]()
    for each in found.joined:
        values = {name: value for side in each.rows for name, value in side.row.items()}
        rows[tuple(values.get(name, "missing") for name in names)] += each.weight
    return rows


def test_a_joined_group_has_the_rows_of_both_sides_and_what_each_topic_gave(
    by_hand: ByHand,
) -> None:
    tables = JoinedTables.create(by_hand, QUERIES)

    def explain(view: str, *key: int | str | None) -> Explained:
        return TableReader.open(tables.job.place.at_view(view)).explain(key)

    tables.send([("a", 1, (1, 1, 5)), ("a", 1, (2, 2, 5)), ("c", 1, (2, 1, 7))])
    tables.job.epoch()
    late = [("c", 1, (3, 1, 9)), ("c", 1, (3, 1, 9)), ("c", 1, (4, 1, "x")), ("c", -1, (2, 1, 7))]
    tables.send(late)
    tables.job.epoch()
    found = explain("q0", 5)
    assert (found.row, found.row_count) == ({"v": 5, "s": 18, "m": 9}, 2)
    first, second = found.epochs
    assert set(first.offsets or ()) == set(tables.topics.values())
    assert set(second.offsets or ()) == {tables.topics["c"]}
    assert isinstance(found.joined, list)
    (joined,) = found.joined
    assert joined.weight == 2 and found.joined_complete
    sides = {name: each for each in joined.rows for name in each.row}
    assert (sides["a.v"].row["a.v"], sides["c.x"].row["c.x"]) == (5, 9)
    assert [sides["a.v"].epoch, sides["c.x"].epoch] == [1, 2]
    assert set(sides["c.x"].offsets or ()) == {tables.topics["c"]}

    tables.send([("b", 1, (1, 9, "y"))])
    tables.job.epoch()
    assert joined_rows(explain("q1", None), "a.k", "c.x") == {(2, "missing"): 1}
    assert joined_rows(explain("q1", 9), "a.k", "c.x") == {(1, 9): 2}
    assert joined_rows(explain("q2"), "a.v") == {(5,): 1}
    assert joined_rows(explain("q3", "y"), "c.x", "b.w") == {(9, "y"): 2}
    for each in (explain("q1", None), explain("q2"), explain("q3", "y")):
        assert each.joined_complete

    (refused,) = tables.job.quarantine()
    assert (refused["quarantine_source"], refused["topic"]) == ("c", tables.topics["c"])
