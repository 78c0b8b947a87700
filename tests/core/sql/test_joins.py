"""FROM with joins: the tree that a query gives, and what is refused with a way out."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jobs.core.plan.tree import Plan, Relation, Scan
from jobs.core.sql.printer import expression_sql
from jobs.core.sql.select import QueryError, parse_joins, parse_query
from schemas.limits import JOINS_MAX
from schemas.types.sql_types import SqlType

SOURCES = {
    name: {column: SqlType.parse(kind) for column, kind in columns.items()}
    for name, columns in {
        "orders": {"id": "BIGINT", "cid": "BIGINT", "kind": "STRING", "n": "INT", "f": "DOUBLE"},
        "customers": {"id": "BIGINT", "region": "STRING", "vip": "BOOLEAN", "f": "DOUBLE"},
        "shipped": {"order_id": "BIGINT", "id": "BIGINT", "n": "INT", "at": "TIMESTAMP(3)"},
    }.items()
}


def plan(sql: str) -> Plan:
    return parse_joins(sql, SOURCES)


def draw(relation: Relation, indent: str = "") -> Iterator[str]:
    """Yield the tree in lines, as SQL."""
    if isinstance(relation, Scan):
        outputs = [
            name if name == expression else f"{expression} AS {name}"
            for name, expression in (
                (each.name.partition(".")[2], expression_sql(each.expression))
                for each in relation.outputs
            )
        ]
        where = "" if relation.where is None else f" WHERE {expression_sql(relation.where)}"
        yield f"{indent}{relation.source} {relation.alias}({', '.join(outputs)}){where}"
        return
    sides = zip(relation.left_keys, relation.right_keys, strict=True)
    on = [f"{expression_sql(left)} = {expression_sql(right)}" for left, right in sides]
    if relation.residual is not None:
        on.append(expression_sql(relation.residual))
    yield f"{indent}{relation.kind} ON {' AND '.join(on)}"
    for side in (relation.left, relation.right):
        yield from draw(side, indent + "  ")


TREES = {
    # keys, aliases, and the columns that are read
    "SELECT c.region, SUM(o.n) FROM orders o JOIN customers AS c ON c.id = o.cid GROUP BY region": [
        "INNER ON o.cid = c.id",
        "  orders o(cid, n)",
        "  customers c(id, region)",
    ],
    "SELECT COUNT(*) FROM orders JOIN customers ON LOWER(kind) = region AND cid = customers.id": [
        "INNER ON LOWER(orders.kind) = customers.region AND orders.cid = customers.id",
        "  orders orders(cid, kind)",
        "  customers customers(id, region)",
    ],
    "SELECT p.kind, COUNT(*) FROM orders p JOIN orders q ON p.id = q.cid GROUP BY p.kind": [
        "INNER ON p.id = q.cid",
        "  orders p(id, kind)",
        "  orders q(cid)",
    ],
    "SELECT COUNT(*) FROM orders o JOIN customers c ON CAST(o.n AS BIGINT) = c.id": [
        "INNER ON CAST(o.n AS BIGINT) = c.id",
        "  orders o(n)",
        "  customers c(id)",
    ],
    # USING is one column; of FULL it is whichever is not NULL
    "SELECT id, COUNT(*) FROM orders FULL JOIN customers USING (id) GROUP BY id": [
        "FULL ON orders.id = customers.id",
        "  orders orders(id)",
        "  customers customers(id)",
    ],
    # a comma takes its equality from WHERE
    "SELECT COUNT(*) FROM orders o, customers c, shipped s "
    "WHERE o.cid = c.id AND s.order_id = o.id AND c.vip AND o.kind <> c.region": [
        "INNER ON o.id = s.order_id",
        "  INNER ON o.cid = c.id",
        "    orders o(id, cid, kind)",
        "    customers c(id, region) WHERE vip",
        "  shipped s(order_id)",
    ],
    # conditions of an inner join: of one side in its scan, of both at the match
    "SELECT COUNT(*) FROM orders o JOIN customers c ON o.cid = c.id AND c.vip AND o.kind < c.region"
    " WHERE n > 1": [
        "INNER ON o.cid = c.id AND o.kind < c.region",
        "  orders o(cid, kind) WHERE n > 1",
        "  customers c(id, region) WHERE vip",
    ],
    # of an outer join: a side that is kept keeps its rows, and does not match
    "SELECT COUNT(*) FROM orders o LEFT JOIN customers c ON o.cid = c.id AND vip AND kind = 'x'": [
        "LEFT ON CASE WHEN o.kind = 'x' THEN o.cid END = c.id",
        "  orders o(cid, kind)",
        "  customers c(id) WHERE vip",
    ],
    "SELECT COUNT(*) FROM orders o RIGHT JOIN customers c ON o.cid = c.id AND vip AND n > 1": [
        "RIGHT ON o.cid = CASE WHEN c.vip THEN c.id END",
        "  orders o(cid) WHERE n > 1",
        "  customers c(id, vip)",
    ],
    "SELECT COUNT(*) FROM orders o FULL JOIN customers c ON o.cid = c.id AND vip AND n > 1": [
        "FULL ON CASE WHEN o.n > 1 THEN o.cid END = CASE WHEN c.vip THEN c.id END",
        "  orders o(cid, n)",
        "  customers c(id, vip)",
    ],
    # WHERE passes a join into a side that is not filled with NULL
    "SELECT COUNT(*) FROM orders o LEFT JOIN customers c ON o.cid = c.id "
    "LEFT JOIN shipped s ON s.order_id = c.id WHERE o.n > 1 AND c.vip": [
        "LEFT ON c.id = s.order_id",
        "  LEFT ON o.cid = c.id",
        "    orders o(cid) WHERE n > 1",
        "    customers c(id, vip)",
        "  shipped s(order_id)",
    ],
    "SELECT COUNT(*) FROM orders o RIGHT JOIN customers c ON o.cid = c.id WHERE n > 1 AND c.vip": [
        "RIGHT ON o.cid = c.id",
        "  orders o(cid, n)",
        "  customers c(id) WHERE vip",
    ],
    # derived tables are filtered and evaluated before the join
    "SELECT u, COUNT(*) FROM orders o LEFT JOIN (SELECT id, COALESCE(region, '?') AS u "
    "FROM customers WHERE vip) AS c ON o.cid = c.id AND u <> '' GROUP BY u": [
        "LEFT ON o.cid = c.id",
        "  orders o(cid)",
        "  customers c(id, COALESCE(region, '?') AS u) WHERE vip AND COALESCE(region, '?') <> ''",
    ],
    # subqueries
    "SELECT COUNT(*) FROM orders o WHERE n > 1 AND cid IN (SELECT DISTINCT id FROM customers "
    "WHERE vip)": [
        "SEMI ON o.cid = customers.id",
        "  orders o(cid) WHERE n > 1",
        "  customers customers(id) WHERE vip",
    ],
    "SELECT COUNT(*) FROM orders AS o WHERE EXISTS (SELECT * FROM orders WHERE id = o.cid)": [
        "SEMI ON o.cid = orders.id",
        "  orders o(cid)",
        "  orders orders(id)",
    ],
    "SELECT COUNT(*) FROM orders o JOIN customers c ON o.cid = c.id WHERE NOT (EXISTS "
    "(SELECT 1 FROM customers WHERE id = o.cid AND vip AND o.n > 3))": [
        "ANTI ON CASE WHEN o.n > 3 THEN o.cid END = customers.id",
        "  INNER ON o.cid = c.id",
        "    orders o(cid, n)",
        "    customers c(id)",
        "  customers customers(id) WHERE vip",
    ],
    # one of several sources
    "SELECT kind, COUNT(*) FROM orders WHERE n > 1 GROUP BY kind": [
        "orders orders(kind) WHERE n > 1"
    ],
}


@pytest.mark.parametrize("sql", TREES)
def test_a_query_with_joins_is_a_tree_of_scans(sql: str) -> None:
    relation = plan(sql).relation
    assert relation is not None
    assert list(draw(relation)) == TREES[sql]


def test_what_a_join_cannot_take_of_where_is_evaluated_over_joined_rows() -> None:
    made = plan(
        "SELECT c.region, SUM(n) FROM orders o LEFT JOIN customers c ON o.cid = c.id "
        "WHERE o.n > 1 AND c.vip AND o.kind <> c.region GROUP BY c.region"
    )
    assert made.where is not None
    assert expression_sql(made.where) == "c.vip AND o.kind <> c.region"
    assert [each.name for each in made.used] == ["o.kind", "o.n", "c.region", "c.vip"]
    assert made.columns == made.used
    assert made.output == ("region", "sum_n")


def test_using_is_the_column_of_the_side_that_is_kept() -> None:
    for kind, key in {
        "": "orders.id",
        "LEFT": "orders.id",
        "RIGHT": "customers.id",
        "FULL": "COALESCE(orders.id, customers.id)",
    }.items():
        made = plan(f"SELECT id FROM orders {kind} JOIN customers USING (id) GROUP BY id")
        assert [expression_sql(each.expression) for each in made.group] == [key]


@pytest.mark.parametrize("name", ["id", "ID", "Id"])
def test_using_may_spell_its_column_in_several_ways(name: str) -> None:
    joined = "FROM orders FULL JOIN customers USING (id) FULL JOIN shipped USING (ID)"
    made = plan(f"SELECT {name}, COUNT(*) {joined} GROUP BY {name}")
    assert [expression_sql(each.expression) for each in made.group] == [
        "COALESCE(COALESCE(orders.id, customers.id), shipped.id)"
    ]


def test_equalities_of_where_are_no_keys_below_a_join_that_fills_their_rows_with_null() -> None:
    made = plan(
        "SELECT COUNT(*) FROM orders o JOIN customers c ON o.cid = c.id "
        "FULL JOIN shipped s ON s.id = c.id WHERE o.id = c.id"
    )
    assert made.where is not None
    assert expression_sql(made.where) == "o.id = c.id"


def test_a_job_of_one_source_may_join_it_with_itself() -> None:
    columns = SOURCES["orders"]
    made = parse_query("SELECT COUNT(*) FROM t AS p JOIN t AS q ON p.id = q.cid", columns)
    assert made.relation is not None
    assert [*draw(made.relation)] == ["INNER ON p.id = q.cid", "   p(id)", "   q(cid)"]


def test_equal_queries_have_equal_fingerprints() -> None:
    first = plan("SELECT COUNT(*) FROM orders o JOIN customers c ON o.cid = c.id AND c.vip")
    second = plan("SELECT COUNT(*) FROM orders o, customers c WHERE c.vip AND c.id = o.cid")
    other = plan("SELECT COUNT(*) FROM orders o LEFT JOIN customers c ON o.cid = c.id AND c.vip")
    assert first == second
    assert first.fingerprint == second.fingerprint != other.fingerprint


COUNT = "SELECT COUNT(*) FROM orders o "
SEVEN = " ".join(f"JOIN customers c{i} ON o.cid = c{i}.id" for i in range(JOINS_MAX + 1))
REFUSED = [
    (COUNT + "JOIN customers c ON o.cid < c.id", 36, "needs an equality of its two sides (try: ON"),
    (COUNT + "JOIN customers c ON TRUE", 36, "needs an equality of its two sides"),
    (COUNT + "CROSS JOIN customers c", 42, "needs an equality of its two sides"),
    (COUNT + "LEFT JOIN customers c", 41, "(try: LEFT JOIN t ON a.k = t.k)"),
    (COUNT + ", customers c WHERE o.n > 1", 33, "another order of the tables)"),
    (
        COUNT + "JOIN customers c ON o.n = c.id",
        51,
        "is INT on one side and BIGINT on the other (try: CAST(o.n AS BIGINT) = c.id)",
    ),
    (COUNT + "JOIN customers c ON c.id = o.kind", 51, "(try: CAST(c.id AS STRING) = o.kind)"),
    (COUNT + "JOIN customers c ON o.f = c.f", 51, "DOUBLE cannot be the key of a join"),
    (COUNT + "JOIN customers c ON o.cid = c.vip", 51, "(try: CAST(o.cid AS BOOLEAN) = c.vip)"),
    (COUNT + "JOIN shipped s ON s.at = o.kind", 49, "(try: CAST(s.at AS STRING) = o.kind)"),
    (COUNT + "LEFT JOIN customers c ON o.cid = c.id AND o.kind < c.region", 73, "a LEFT JOIN must"),
    (COUNT + "NATURAL JOIN customers", 44, "NATURAL JOIN is not supported (try: USING (k)"),
    (COUNT + "ASOF JOIN customers c ON o.cid = c.id", 41, "ASOF JOIN is not supported"),
    (COUNT + "LEFT SEMI JOIN customers c ON o.cid = c.id", 46, "(try: WHERE EXISTS (SELECT 1"),
    (
        COUNT + "JOIN customers FOR SYSTEM_TIME AS OF o.f AS c ON o.cid = c.id",
        68,
        "join its current",
    ),
    (COUNT + "JOIN LATERAL (SELECT 1) AS x ON TRUE", 52, "a row cannot choose the rows"),
    (COUNT + "JOIN (customers c JOIN shipped s ON c.id = s.id) ON o.cid = c.id", 37, "from left"),
    (
        "SELECT COUNT(*) FROM (SELECT o.id FROM orders o JOIN customers c ON o.cid = c.id) AS x",
        54,
        "a join in a derived table",
    ),
    (COUNT + "JOIN (SELECT id FROM customers) ON o.cid = id", 44, "needs a name (try: AS name)"),
    (COUNT + "JOIN nothing c ON o.cid = c.id", 36, "unknown source `nothing`; known: `orders`, "),
    (COUNT + "JOIN customers O ON o.cid = O.id", 36, "two tables with the name `O` (try: AS O_2)"),
    (COUNT + "JOIN customers `a.b` ON o.cid = 1", 36, "`a.b` cannot name a table"),
    (COUNT + "JOIN customers c ON o.cid = id", 59, "`id` is a column of `o` and `c` (try: o.id)"),
    (COUNT + "JOIN customers c ON o.cid = x.id", 59, "unknown table `x`; known: `o`, `c`"),
    (COUNT + "JOIN customers c USING (region)", 55, "unknown column `region`"),
    (COUNT + "JOIN customers c ON o.cid = c.id AND COUNT(*) > 1", 68, "not possible in ON"),
    (COUNT + "JOIN customers c ON o.cid = c.id AND c.region", 68, "ON needs a condition, this is"),
    (COUNT + SEVEN, 246, f"at most {JOINS_MAX} joins"),
    (
        "SELECT o.n FROM orders o JOIN customers c ON o.cid = c.id GROUP BY region",
        8,
        "`o.n` is neither in GROUP BY nor inside an aggregate (try: GROUP BY o.n, or MAX(o.n))",
    ),
    (COUNT + "WHERE o.cid NOT IN (SELECT id FROM customers)", 37, "(try: NOT EXISTS (SELECT 1"),
    (COUNT + "WHERE o.cid IN (SELECT id, vip FROM customers)", 54, "needs one column"),
    (COUNT + "WHERE n > 1 OR o.cid IN (SELECT id FROM customers)", 46, "among the ANDs of WHERE"),
    (COUNT + "WHERE EXISTS (SELECT 1 FROM customers WHERE vip)", 52, "needs an equality"),
    (
        COUNT + "WHERE EXISTS (SELECT 1 FROM customers c WHERE c.id = o.cid AND c.region > o.kind)",
        94,
        "by equalities only",
    ),
    (COUNT + "WHERE EXISTS (SELECT id FROM customers GROUP BY id)", 79, "GROUP BY in a derived"),
    (COUNT + "WHERE o.cid IN (SELECT MAX(id) FROM customers)", 54, "not possible in IN"),
    # without GROUP BY an aggregate returns a row even if no row is there
    (
        COUNT + "WHERE EXISTS (SELECT COUNT(*) FROM customers c WHERE c.id = o.cid)",
        52,
        "an aggregate is not possible in EXISTS",
    ),
    (
        COUNT + "WHERE NOT EXISTS (SELECT c.no FROM customers c WHERE c.id = o.cid)",
        56,
        "unknown column `no`",
    ),
]


@pytest.mark.parametrize(("sql", "column", "message"), REFUSED, ids=[case[0] for case in REFUSED])
def test_what_cannot_be_joined_is_refused_with_its_place_and_a_way_out(
    sql: str, column: int, message: str
) -> None:
    with pytest.raises(QueryError) as caught:
        plan(sql)
    first = caught.value.problems[0]
    assert message in str(first)
    assert first.column == column
