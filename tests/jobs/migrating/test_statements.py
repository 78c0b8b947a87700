"""Statements of Flink SQL in their order: a name means one thing, a setting holds until RESET."""

from __future__ import annotations

import pytest

from jobs.migrating.conversion import Conversion, convert

KAFKA = (
    "'connector' = 'kafka', 'properties.bootstrap.servers' = 'b:9092', 'format' = 'canal-json', "
    "'scan.startup.mode' = 'earliest-offset', 'topic' = "
)
ORDERS = f"CREATE TABLE orders (shop STRING, region STRING, qty INT) WITH ({KAFKA}'orders');\n"
OUT = "CREATE TABLE out{} (shop STRING, n BIGINT) WITH ('connector' = 'print');\n"
TABLES = ORDERS + OUT.format(1) + OUT.format(2)
VIEW = "CREATE VIEW vv AS SELECT shop, qty FROM orders;\n"
COUNTS = "SELECT shop, COUNT(*) FROM vv GROUP BY shop;\n"


def convert_after_tables(sql: str) -> Conversion:
    return convert(TABLES + sql)


@pytest.mark.parametrize(
    "sql",
    [
        f"{VIEW}INSERT INTO out1 WITH /**/orders AS (SELECT region AS shop FROM orders) {COUNTS}",
        "CREATE VIEW vv AS WITH a AS (SELECT shop, qty FROM orders WHERE qty > 1) SELECT * FROM a;"
        "INSERT INTO out1 WITH /**/a AS (SELECT shop, qty FROM orders WHERE qty > 2) " + COUNTS,
        "CREATE VIEW vv AS WITH a AS (SELECT shop, qty FROM orders WHERE qty > 1) SELECT * FROM a;"
        f"CREATE VIEW /**/a AS SELECT * FROM orders; INSERT INTO out1 {COUNTS}",
        "INSERT INTO out1 WITH vv AS (SELECT shop FROM orders), "
        f"/**/vv AS (SELECT region AS shop FROM orders) {COUNTS}",
        f"{VIEW}CREATE TABLE db2./**/orders (shop STRING) WITH ({KAFKA}'x'); INSERT INTO out1 "
        + COUNTS,
        f"{VIEW}CREATE VIEW /**/vv AS SELECT region AS shop FROM orders; INSERT INTO out1 {COUNTS}",
    ],
)
def test_a_name_that_is_known_is_refused_at_its_place(sql: str) -> None:
    conversion = convert_after_tables(sql)
    first, *others = conversion.problems
    assert first.reason.startswith(("there is another table or view ", "WITH defines vv twice"))
    assert first.offset == len(TABLES) + sql.index("/**/") + 4
    assert all(each.reason.startswith("there is no CREATE TABLE") for each in others)
    assert not conversion.drafts


def test_if_not_exists_keeps_what_is_known() -> None:
    other = ORDERS.replace("TABLE", "TABLE IF NOT EXISTS").replace("'orders'", "'other'")
    view = "CREATE VIEW IF NOT EXISTS vv AS SELECT region AS shop FROM orders;"
    conversion = convert_after_tables(f"{other}{VIEW}{view}INSERT INTO out1 {COUNTS}")
    assert not conversion.problems
    (draft,) = conversion.drafts
    assert draft.document["source"]["topic"] == "orders"
    assert "region" not in draft.document["query"]


@pytest.mark.parametrize("reset", ["RESET 'table.exec.state.ttl'", "RESET table.exec.state.ttl"])
def test_a_setting_holds_from_set_to_reset(reset: str) -> None:
    sql = (
        f"SET 'table.exec.state.ttl' = '1 h'; SET 'table.exec.source.idle-timeout' = '1 s';{VIEW}"
        f"INSERT INTO out1 {COUNTS}{reset};\nINSERT INTO out2 {COUNTS}"
    )
    first, second = convert_after_tables(sql).drafts
    assert first.document["state"]["ttl"] == "1h"
    assert "state" not in second.document
    (draft,) = convert_after_tables(sql.replace(f"INSERT INTO out1 {COUNTS}", "RESET;\n")).drafts
    assert "state" not in draft.document


def test_a_table_that_is_dropped_and_made_again_is_of_later_inserts_only() -> None:
    counts = "SELECT shop, SUM(n) FROM v GROUP BY shop;\n"
    again = ORDERS.replace("'orders'", "'other'")
    conversion = convert_after_tables(
        "CREATE VIEW v AS SELECT shop, COUNT(*) AS n FROM orders GROUP BY shop;\n"
        f"INSERT INTO out1 {counts}DROP TABLE IF EXISTS orders;\n{again}INSERT INTO out2 {counts}"
    )
    assert not conversion.problems
    topics = {each.file_name: each.document["source"]["topic"] for each in conversion.drafts}
    assert topics == {
        "v.yaml": "orders", "out1.yaml": "v-changes",
        "out2_v.yaml": "other", "out2.yaml": "out2_v-changes",
    }  # fmt: skip
    dropped = convert_after_tables(f"{VIEW}DROP VIEW vv; INSERT INTO out1 {COUNTS}")
    assert dropped.problems[0].reason == "there is no CREATE TABLE or VIEW of vv"
