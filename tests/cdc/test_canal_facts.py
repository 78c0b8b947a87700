"""What docs/formats.md says of canal-json, seen on a real canal.

The messages are replayed in this process; only the database and canal are other processes.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pytest

from tests.cdc.canal import Canal
from tests.cdc.recorder import recorded
from tests.cdc.workload import COLUMNS, Query, Workload, queries, table_definition

pytestmark = [pytest.mark.cdc, pytest.mark.spark, pytest.mark.timeout(600)]
DEDUPE: dict[str, Any] = {"primary_key": ["id"], "dedupe": "pk"}


def messages(canal: Canal, table: str) -> list[tuple[int, dict[str, Any]]]:
    return [(partition, json.loads(text)) for partition, text in canal.texts(table)]


def values(canal: Canal, table: str, column: str) -> list[str | None]:
    """Return what the messages have in a column, by id."""
    rows = [row for _, message in messages(canal, table) for row in message["data"] or ()]
    return [row[column] for row in sorted(rows, key=lambda row: int(row["id"]))]


def filled(canal: Canal, definition: str, *statements: str) -> None:
    canal.create_table(definition)
    canal.database.run(";".join(statements))
    canal.catch_up()


def test_an_updated_key_comes_once_in_the_partition_of_the_new_key(canal: Canal) -> None:
    workload = Workload("places", 5, moves=True)
    filled(canal, table_definition("places"), workload.transactions(200))
    images: dict[str, set[int]] = defaultdict(set)  # of a key, in which partitions it is set
    moves = 0
    for partition, message in messages(canal, "places"):
        assert message["es"] % 1000 == 0, "es has milliseconds"
        for row in message["data"] or ():
            images[row["id"]].add(partition)
        moves += sum("id" in old for old in message["old"] or ())
    assert moves > 50
    assert {len(partitions) for partitions in images.values()} == {1}


def test_ddl_comes_in_partition_0(canal: Canal) -> None:
    filled(
        canal,
        "CREATE TABLE shapes (id INT PRIMARY KEY, a INT)",
        "INSERT INTO shapes VALUES (1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (6, 6), (7, 7), (8, 8)",
        "ALTER TABLE shapes ADD COLUMN b INT",
        "TRUNCATE TABLE shapes",
    )
    found = messages(canal, "shapes")
    ddl = [(partition, message["type"]) for partition, message in found if message["isDdl"]]
    assert ddl == [(0, "CREATE"), (0, "ALTER"), (0, "TRUNCATE")]
    assert {partition for partition, message in found if not message["isDdl"]} > {0}


@pytest.mark.parametrize("lost_position", [False, True])
def test_a_killed_canal_repeats_in_order_counts_from_1_and_goes_back_in_time(
    canal: Canal, lost_position: bool
) -> None:
    table = f"backwards_{lost_position}".lower()
    filled(canal, table_definition(table), Workload(table, 6).transactions(100))
    before = by_partition(canal, table)
    canal.kill()
    if lost_position:
        canal.set_back()
    canal.start()
    canal.catch_up()
    for partition, found in by_partition(canal, table).items():
        sent = before[partition]
        assert found[: len(sent)] == sent
        again = found[len(sent) :]
        assert len(again) == len(sent) or not lost_position
        if again:
            repeated = sent[-len(again) :]
            assert [each["data"] for each in again] == [each["data"] for each in repeated]
            # From the beginning of the binlog, other tables may take the first numbers.
            assert again[0]["id"] < sent[-1]["id"] or lost_position
            assert again[0]["es"] <= sent[-1]["es"]


def by_partition(canal: Canal, table: str) -> dict[int, list[dict[str, Any]]]:
    found: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for partition, message in messages(canal, table):
        found[partition].append(message)
    return found


def test_an_update_that_changes_no_value_is_not_sent(canal: Canal) -> None:
    filled(
        canal,
        "CREATE TABLE still (id INT PRIMARY KEY, qty INT)",
        "INSERT INTO still VALUES (1, 1)",
        "UPDATE still SET qty = qty",
    )
    assert [message["type"] for _, message in messages(canal, "still")] == ["CREATE", "INSERT"]


def test_timestamp_is_text_in_the_time_zone_of_canal_and_datetime_is_as_written(
    canal: Canal,
) -> None:
    filled(
        canal,
        "CREATE TABLE zones (id INT PRIMARY KEY, stamp TIMESTAMP NULL, moment DATETIME)",
        "INSERT INTO zones VALUES (1, '2026-01-31 12:00:00', '2026-01-31 12:00:00')",
    )
    canal.stop()
    canal.zone = "Asia/Shanghai"
    canal.start()
    canal.database.run("INSERT INTO zones VALUES (2, '2026-01-31 12:00:00', '2026-01-31 12:00:00')")
    canal.catch_up()
    canal.stop()
    canal.zone = "UTC"
    canal.start()
    before, *after = values(canal, "zones", "stamp")  # it may send the first row again
    assert (before, set(after)) == ("2026-01-31 12:00:00", {"2026-01-31 20:00:00"})
    assert set(values(canal, "zones", "moment")) == {"2026-01-31 12:00:00"}


def test_letters_of_a_latin1_column_arrive_as_replacement_characters(canal: Canal) -> None:
    filled(
        canal,
        "CREATE TABLE old_text (id INT PRIMARY KEY, city VARCHAR(20) CHARACTER SET latin1)",
        "INSERT INTO old_text VALUES (1, 'Zürich'), (2, 'Bern')",
    )
    assert values(canal, "old_text", "city") == ["Z\ufffdrich", "Bern"]


def test_tinyint_1_and_time_beyond_a_day_are_what_the_page_says(canal: Canal) -> None:
    filled(
        canal,
        "CREATE TABLE odd (id INT PRIMARY KEY, paid TINYINT(1), length TIME)",
        "INSERT INTO odd VALUES (1, 1, '01:00:00'), (2, 2, '02:00:00'), (3, -1, '03:00:00')",
        "INSERT INTO odd VALUES (4, 0, '25:00:00')",
        "INSERT INTO odd VALUES (5, 0, '-01:00:00')",
    )
    assert values(canal, "odd", "paid") == ["1", "2", "-1", "0", "0"]
    query = Query(["paid"], "SELECT paid, COUNT(*) AS n FROM odd GROUP BY paid")
    boolean = recorded(canal, "odd", query, {"paid": "BOOLEAN"})
    assert sorted(boolean.folded(0)[0], key=str) == [
        {"paid": False, "n": 2},
        {"paid": True, "n": 3},
    ]
    assert recorded(canal, "odd", query, {"paid": "TINYINT"}).problems(0) == []
    by_length = Query(["length"], "SELECT length, COUNT(*) AS n FROM odd GROUP BY length")
    rows, refused = recorded(canal, "odd", by_length, {"length": "TIME"}).folded(0)
    assert (len(rows), len(refused)) == (3, 2)
    assert recorded(canal, "odd", by_length, {"length": "STRING"}).problems(0) == []


def test_sum_and_avg_of_int_need_a_wider_type_to_be_those_of_the_database(canal: Canal) -> None:
    filled(
        canal,
        "CREATE TABLE sums (id INT PRIMARY KEY, qty INT)",
        "INSERT INTO sums VALUES (1, 2147483647), (2, 2), (3, 2)",
    )
    query = Query([], "SELECT SUM(qty) AS total, AVG(qty) AS mean FROM sums")
    whole, _ = recorded(canal, "sums", query, {"qty": "INT"}).folded(0)
    assert whole == [{"total": None, "mean": 715827883}]
    assert canal.database.rows(query.text) == [{"total": "2147483651", "mean": "715827883.6667"}]
    (broad,), _ = recorded(canal, "sums", query, {"qty": "DECIMAL(10, 0)"}).folded(0)
    assert (broad["total"], broad["mean"]) == ("2147483651", "715827883.666667")


def test_the_database_groups_text_by_its_collation_and_a_job_by_its_letters(canal: Canal) -> None:
    filled(
        canal,
        "CREATE TABLE names (id INT PRIMARY KEY, name VARCHAR(20) COLLATE utf8mb4_general_ci)",
        "INSERT INTO names VALUES (1, 'Anna'), (2, 'anna'), (3, 'ANNA '), (4, 'é'), (5, 'e')",
    )
    query = Query(["name"], "SELECT name, COUNT(*) AS n FROM names GROUP BY name")
    assert sorted(row["n"] or "" for row in canal.database.rows(query.text)) == ["2", "3"]
    assert len(recorded(canal, "names", query, {"name": "STRING"}).folded(0)[0]) == 5
    text = "SELECT LOWER(RTRIM(name)) AS name, COUNT(*) AS n FROM names GROUP BY LOWER(RTRIM(name))"
    rows, _ = recorded(canal, "names", Query(["name"], text), {"name": "STRING"}).folded(0)
    assert {row["name"]: row["n"] for row in rows} == {"anna": 3, "é": 1, "e": 1}


def test_an_alter_of_an_enum_keeps_labels_and_changes_numbers_without_a_message(
    canal: Canal,
) -> None:
    filled(
        canal,
        "CREATE TABLE relabelled (id INT PRIMARY KEY, state ENUM('new','paid'), qty INT)",
        "INSERT INTO relabelled VALUES (1, 'new', 1), (2, 'paid', 1), (3, 'new', 1), (4, 'new', 1)",
        "ALTER TABLE relabelled MODIFY state ENUM('draft','new','paid','sent')",
        "UPDATE relabelled SET qty = 2 WHERE id = 1",
        "UPDATE relabelled SET state = 'sent' WHERE id = 2",
        "DELETE FROM relabelled WHERE id = 3",
    )
    with pytest.raises(AssertionError, match="truncated"):
        canal.database.run("ALTER TABLE relabelled MODIFY state ENUM('draft','paid','sent')")
    text = "SELECT state, COUNT(*) AS n, SUM(qty) AS qty FROM relabelled GROUP BY state"
    numbers = text.replace("state,", "state + 0 AS state,")
    labels = recorded(
        canal, "relabelled", Query(["state"], text), {"state": "STRING", "qty": "INT"}
    )
    assert labels.problems(0) == []
    by_number = Query(["state"], text, numbers)
    assert (
        recorded(canal, "relabelled", by_number, {"state": "INT", "qty": "INT"}).problems(0) != []
    )


@pytest.mark.parametrize("touched", [False, True])
def test_rows_from_before_canal_are_there_once_they_are_touched(
    canal: Canal, touched: bool
) -> None:
    table = f"aged_{touched}".lower()
    workload = Workload(table, 8)
    filled(canal, table_definition(table), workload.transactions(60))
    before = [partition for partition, _ in canal.texts(table)]
    canal.database.run(workload.transactions(20))
    if touched:
        canal.database.run(
            f"ALTER TABLE {table} ADD COLUMN touched INT NOT NULL DEFAULT 0;"
            f"UPDATE {table} SET touched = touched + 1"
        )
    canal.database.run(workload.transactions(20))
    canal.catch_up()
    whole = recorded(canal, table, queries(table)["customer"], COLUMNS)
    for partition, texts in enumerate(whole.partitions):
        del texts[: before.count(partition)]  # canal was not there yet
    assert (whole.problems(0, **DEDUPE) == []) is touched
