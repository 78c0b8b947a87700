"""The tables of a statement: jobs by name, now or in the past."""

from __future__ import annotations

import pytest

from jobs.querying.statement import Moment, StatementRefused, read_statement

JOBS = ["items", "daily-orders", "n"]
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
        StatementRefused, match=r"there is no job .*the jobs are items, daily-orders"
    ):
        read_statement(written, JOBS)


def test_a_conversion_of_time_zones_is_no_past() -> None:
    written = "SELECT (a AT TIME ZONE 'UTC'), b AT TIME ZONE 'UTC' FROM items"
    assert read_statement(written, JOBS).sql == written
