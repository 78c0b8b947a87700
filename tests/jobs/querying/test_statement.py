"""The tables of a statement: jobs by name, now or in the past."""

from __future__ import annotations

import pytest

from jobs.querying.statement import Moment, StatementRefused, point_at, quote_name, read_statement

JOBS = ["items", "daily-orders", "n", "city_stats"]
EPOCH_3 = Moment(epoch=3, text=" AT EPOCH 3")


@pytest.mark.parametrize(
    ("written", "read", "tables"),
    [
        ("SELECT * FROM items", "SELECT * FROM items", {"items": ("items", Moment())}),
        (
            "SELECT * FROM items JOIN daily-orders USING (name)",
            'SELECT * FROM items JOIN "daily-orders" USING (name)',
            {"items": ("items", Moment()), "daily-orders": ("daily-orders", Moment())},
        ),
        (
            "select items.n from ITEMS at epoch 3 where items.n > 1",
            'select items.n from "items AT EPOCH 3" AS "items" where items.n > 1',
            {"items AT EPOCH 3": ("items", EPOCH_3)},
        ),
        (
            'SELECT a.n - b.n FROM items a, "items" AT EPOCH 3 AS b',
            'SELECT a.n - b.n FROM items a, "items AT EPOCH 3" AS b',
            {"items": ("items", Moment()), "items AT EPOCH 3": ("items", EPOCH_3)},
        ),
        (
            "SELECT * FROM city_stats",
            "SELECT * FROM city_stats",
            {"city_stats": ("city_stats", Moment())},
        ),
        ("SELECT * FROM items_old, n-items", None, {}),
        ("SELECT 'FROM items AT EPOCH 3' -- FROM items", None, {}),
        ("SELECT a -n FROM other", None, {}),
    ],
)
def test_jobs_are_found_where_tables_stand(
    written: str, read: str | None, tables: dict[str, tuple[str, Moment]]
) -> None:
    found = read_statement(written, JOBS)
    assert found.sql == (written if read is None else read)
    assert found.tables == tables


def test_a_time_is_an_instant_and_without_a_zone_in_utc() -> None:
    for text in ("2026-01-01T01:00:00+01:00", "2026-01-01 00:00:00", "2026-01-01"):
        found = read_statement(f"FROM items AT TIME '{text}'", JOBS)
        ((_, moment),) = found.tables.values()
        assert moment.time_us == 1_767_225_600_000_000
    with pytest.raises(StatementRefused, match="'noon' is not a time; write it like"):
        read_statement("FROM items AT TIME 'noon'", JOBS)
    with pytest.raises(StatementRefused, match="is not a time"):
        read_statement("""FROM items AT TIME '2099-01-31"12:00:00'""", JOBS)


@pytest.mark.parametrize(
    "written",
    [
        "SELECT * FROM nosuch AT EPOCH 4",
        "SELECT 1 FROM n, no_such AT TIME '2026-01-31' AS a",
        'SELECT * FROM "nosuch" AT EPOCH 4',
        "SELECT * FROM items.nosuch AT EPOCH 4",
    ],
)
def test_a_past_of_what_no_job_has_names_the_jobs(written: str) -> None:
    with pytest.raises(
        StatementRefused, match=r"there is no job .*the jobs are items, \"daily-orders\""
    ):
        read_statement(written, JOBS)


def test_a_conversion_of_time_zones_is_no_past() -> None:
    written = "SELECT (a AT TIME ZONE 'UTC'), b AT TIME ZONE 'UTC' FROM items"
    assert read_statement(written, JOBS).sql == written


@pytest.mark.parametrize(
    ("written", "reason", "position"),
    [
        ("FROM items AT EPOCH x", "AT EPOCH takes a whole number", 20),
        ("FROM items AT EPOCH", "AT EPOCH takes a whole number", 19),
        ("EXPLAIN FROM items AT EPOCH -1", "AT EPOCH takes a whole number", 28),
        ("FROM items AT TIME now()", "AT TIME takes a time in quotes", 19),
        ("FROM items AT TIME 'noon'", "'noon' is not a time", 19),
        ("FROM items AT (VERSION => 3)", "after AT comes EPOCH", 14),
        ("FROM n, nosuch AT EPOCH 3", "there is no job 'nosuch'", 8),
    ],
)
def test_a_mistake_in_a_past_is_shown_at_its_place(
    written: str, reason: str, position: int
) -> None:
    with pytest.raises(StatementRefused, match=reason) as refused:
        read_statement(written, JOBS)
    assert refused.value.position == position


def test_each_position_leads_back_to_what_was_written() -> None:
    written = "SELECT x FROM items AT EPOCH 3 JOIN daily-orders USING (y) WHERE z"
    found = read_statement(written, JOBS)
    for word in ("x", "JOIN", "USING", "(y)", "WHERE", "z"):
        assert found.find_written(found.sql.index(word)) == written.index(word)
    assert found.find_written(found.sql.index('"items')) == written.index("items")
    assert found.find_written(found.sql.index('"daily')) == written.index("daily")
    assert written.index("items") <= found.find_written(found.sql.index("EPOCH")) <= 30


def test_the_line_of_a_mistake_is_shown_with_a_caret() -> None:
    assert point_at("SELECT 1,\n\tnosuch\nFROM t", 11) == "\n\nLINE 2:  nosuch\n         ^"
    long = "SELECT " + "a, " * 100 + "nosuch"
    line, caret = point_at(long, long.index("nosuch")).strip("\n").split("\n")
    assert len(line) <= 100 and line[caret.index("^") :] == "nosuch"


def test_a_name_is_quoted_where_sql_needs_it() -> None:
    names = ["items", "daily-orders", "city_stats", "orders.by-day"]
    quoted = ["items", '"daily-orders"', "city_stats", 'orders."by-day"']
    assert list(map(quote_name, names)) == quoted


@pytest.mark.parametrize(
    ("sql", "lists"),
    [
        ("SELECT * FROM items ORDER BY total DESC, name desc LIMIT 1", False),
        ("SELECT max(top) OVER (ORDER BY name DESC) FROM items", False),
        ("DESC items", True),
        ("DESCRIBE items", True),
        ("SELECT * FROM (DESC items)", True),
        ("SHOW TABLES", True),
        ("SELECT * FROM information_schema.tables", True),
    ],
)
def test_a_descending_order_lists_no_tables(sql: str, lists: bool) -> None:
    assert read_statement(sql, ["items"]).reads_catalog is lists
