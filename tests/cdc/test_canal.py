"""Jobs behind a real canal are exact: the truth is the same SQL in the database.

database ──► binlog ──► canal ──► 4 partitions ──► job ──► results = the database's rows

`make cdc-test` runs these, with MariaDB and with MySQL.
"""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cdc import kinds
from tests.cdc.canal import BY_CUSTOMER, Canal
from tests.cdc.exactness import job_of, load_job
from tests.cdc.workload import COLUMNS, STATES, Query, Workload, queries, quote, table_definition
from tests.support.faults.tally import FaultTally

pytestmark = [pytest.mark.cdc, pytest.mark.spark, pytest.mark.timeout(1_200)]
SEED = int(os.environ.get("CDC_SEED", "1"))
DEDUPE: dict[str, Any] = {"primary_key": ["id"], "dedupe": "pk"}
PLAIN: dict[str, Any] = {}
with_and_without_dedupe = pytest.mark.parametrize(
    "sections", [PLAIN, DEDUPE], ids=["plain", "dedupe"]
)
TRANSACTIONS = int(os.environ.get("CDC_TRANSACTIONS", "600"))


def suite(canal: Canal, what: str) -> FaultTally:
    tally = FaultTally(f"{canal.database.kind} and canal: {what}")
    tally.further |= {"wrong": 0, "quarantined": 0, "seed": SEED}
    return tally


def filled(
    canal: Canal, table: str, *, moves: bool = False, state: str = "VARCHAR(10)"
) -> Workload:
    """Create a table of the workload and run its first transactions."""
    canal.create_table(table_definition(table, state))
    workload = Workload(table, SEED, moves)
    canal.database.run(workload.transactions(TRANSACTIONS))
    canal.catch_up()
    return workload


def test_a_job_that_is_killed_under_load_has_the_rows_of_the_database(
    canal: Canal, tmp_path: Path
) -> None:
    tally = suite(canal, "load, the job killed")
    workload = filled(canal, "orders")
    job = load_job(canal, "orders", tmp_path)
    tally.plan("kill -9 of the job")
    process = job.run.start(caught_up=False)
    while not job.run.table.exists() or all(row.kind != "data" for row in job.run.epochs()):
        assert process.poll() is None, process.communicate()
        canal.database.run(workload.transactions(10))
        time.sleep(1)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    tally.fire("kill -9 of the job")
    canal.database.run(workload.transactions(50))
    canal.catch_up()
    job.run.must_run()
    tally.inputs = canal.count("orders")
    job.check(tally)


@with_and_without_dedupe
def test_updated_and_swapped_primary_keys_leave_a_job_exact(
    canal: Canal, tmp_path: Path, sections: dict[str, Any]
) -> None:
    table = f"moved_{len(sections)}"
    tally = suite(canal, f"primary keys updated and swapped{', dedupe: pk' * bool(sections)}")
    filled(canal, table, moves=True)
    job = load_job(canal, table, tmp_path, **sections)
    job.run.must_run()
    tally.inputs = canal.count(table)
    job.check(tally)


@with_and_without_dedupe
def test_a_job_over_two_tables_that_change_in_the_same_transactions_is_exact(
    canal: Canal, tmp_path: Path, sections: dict[str, Any]
) -> None:
    tables = [f"{side}_{len(sections)}" for side in ("left", "right")]
    tally = suite(canal, f"two tables in a transaction{', dedupe: pk' * bool(sections)}")
    for table in tables:
        canal.create_table(table_definition(table))
    one, other = (Workload(table, SEED + len(table), moves=True) for table in tables)
    canal.database.run(one.transactions_with(other, TRANSACTIONS // 2))
    canal.catch_up()
    query = queries("both_tables")["customer"]
    rows = " UNION ALL ".join(f"SELECT {', '.join(COLUMNS)} FROM {table}" for table in tables)
    truth = query.text.replace("FROM both_tables", f"FROM ({rows}) AS both_tables")
    views = {"customer": Query(query.keys, query.text, truth)}
    if sections:
        sections = {**sections, "primary_key": ["__table", "id"]}
    job = job_of(canal, tables, tmp_path, views, columns=COLUMNS, **sections)
    job.run.must_run()
    tally.inputs = sum(map(canal.count, tables))
    job.check(tally)


def test_a_topic_hashed_by_a_column_that_changes_is_exact_only_without_dedupe_which_says_so(
    canal: Canal, tmp_path: Path
) -> None:
    tally = suite(canal, "topic hashed by a column that changes")
    filled(canal, BY_CUSTOMER, moves=True)
    job = load_job(canal, BY_CUSTOMER, tmp_path)
    job.run.must_run()
    tally.inputs = canal.count(BY_CUSTOMER)
    job.check(tally)
    deduping = load_job(canal, BY_CUSTOMER, tmp_path, **DEDUPE)
    deduping.run.must_run()
    counted = [
        epoch.counters.get("keys_in_several_partitions", 0) for epoch in deduping.run.epochs()
    ]
    audit = deduping.audit()
    assert audit["verdict"] == "undecided"
    assert 0 < audit["odd"]["keys_in_several_partitions"] <= sum(counted)


def test_a_plain_job_that_read_what_canal_repeats_is_never_vouched_for(
    canal: Canal, tmp_path: Path
) -> None:
    workload = filled(canal, "twice")
    views = {"customer": queries("twice")["customer"]}
    job = job_of(canal, ["twice"], tmp_path, views, columns=COLUMNS)
    for lost_position in (False, True):
        canal.database.run(workload.transactions(50))
        canal.catch_up()
        job.run.must_run()
        canal.kill()
        if lost_position:
            canal.set_back()
        canal.start()
        canal.catch_up()
        job.run.must_run()
        problems = job.compare(suite(canal, "repeats without dedupe"))
        audit = job.audit()
        assert audit["verdict"] == "undecided" if problems else "equal", (audit, problems[:5])
        noticed = sum(epoch.counts.source_repeats for epoch in job.run.epochs())
        assert noticed or not lost_position, "the job has not noticed that canal was set back"
    assert problems
    assert audit["odd"]["repeated_messages"] > 1_000
    assert audit["odd"]["source_repeats"] == noticed


@pytest.mark.parametrize("moves", [False, True], ids=["same-keys", "moved-keys"])
def test_what_a_killed_canal_repeats_leaves_a_job_with_dedupe_exact(
    canal: Canal, tmp_path: Path, moves: bool
) -> None:
    table = "again_moved" if moves else "again"
    tally = suite(canal, f"canal killed and set back, dedupe: pk{', keys updated' * moves}")
    workload = filled(canal, table, moves=moves)
    sent = canal.count(table)
    job = load_job(canal, table, tmp_path, **DEDUPE)
    job.run.must_run()
    for fault in ("kill -9 of canal", "canal's position lost"):
        tally.plan(fault)
        canal.kill()
        canal.database.run(workload.transactions(20))
        if fault != "kill -9 of canal":
            canal.set_back()
        canal.start()
        canal.catch_up()
        tally.fire(fault)
        job.run.must_run()
    tally.inputs = canal.count(table)
    assert tally.inputs > 2 * sent, "canal has not repeated the history"
    job.check(tally)


def test_every_type_arrives_as_the_database_has_it(canal: Canal, tmp_path: Path) -> None:
    tally = suite(canal, f"{len(kinds.KINDS)} types")
    canal.create_table(kinds.definition("kinds", kinds.KINDS))
    canal.database.run(kinds.changes("kinds", kinds.KINDS))
    canal.catch_up()
    views = {"all": kinds.query("kinds", kinds.KINDS)}
    job = job_of(canal, ["kinds"], tmp_path, views, columns=kinds.columns_of(kinds.KINDS))
    job.run.must_run()
    tally.inputs = canal.count("kinds")
    job.check(tally)


def test_ddl_of_other_columns_in_the_middle_leaves_a_job_exact(
    canal: Canal, tmp_path: Path
) -> None:
    tally = suite(canal, "DDL in the middle")
    labels = ", ".join(map(quote, STATES))
    workload = filled(canal, "altered", state=f"ENUM({labels})")
    for statement in (
        "ALTER TABLE altered ADD COLUMN extra INT DEFAULT 7 FIRST",
        f"ALTER TABLE altered MODIFY COLUMN state ENUM('draft', {labels}, 'lost') NOT NULL",
        "ALTER TABLE altered CHANGE COLUMN extra another VARCHAR(20)",
        "CREATE INDEX by_customer ON altered (customer)",
        "ALTER TABLE altered MODIFY COLUMN qty BIGINT NOT NULL",
        "ALTER TABLE altered DROP COLUMN another",
    ):
        tally.plan("DDL")
        canal.database.run(f"{statement}; UPDATE altered SET qty = qty + 1 WHERE id % 3 = 0")
        if "another" not in statement:
            canal.database.run(workload.transactions(20))
        tally.fire("DDL")
    canal.catch_up()
    job = load_job(canal, "altered", tmp_path)
    job.run.must_run()
    tally.inputs = canal.count("altered")
    job.check(tally)


def test_a_truncate_stops_a_job_with_the_place_and_the_ways_out(
    canal: Canal, tmp_path: Path
) -> None:
    workload = filled(canal, "emptied")
    job = load_job(canal, "emptied", tmp_path)
    job.run.must_run()
    canal.database.run("TRUNCATE TABLE emptied")
    workload.keys.clear()
    canal.database.run(workload.transactions(5))
    canal.catch_up()
    code, output = job.run.run()
    assert code != 0
    assert re.search(r"TRUNCATE.*partition 0, offset \d+|partition 0.*TRUNCATE", output), output


@pytest.mark.parametrize("moves", [False, True], ids=["repeated", "moved-keys"])
def test_an_applied_truncate_leaves_the_rows_of_the_database(
    canal: Canal, tmp_path: Path, moves: bool
) -> None:
    """Keys that change are not repeated here: within a second they look like repeats."""
    fault, table = "canal's position lost", "cleared_moved" if moves else "cleared"
    what = "keys updated" if moves else fault
    tally = suite(canal, f"TRUNCATE applied, {what}, dedupe: pk")
    workload = filled(canal, table, moves=moves)
    sent = canal.count(table)
    job = load_job(canal, table, tmp_path, **DEDUPE, on_truncate="apply")
    job.run.must_run()
    for at_rest in (False, True):  # between two runs of the job, and with nothing behind it
        canal.database.run(workload.transactions(20))
        truncate(canal, workload)
        if not at_rest:
            canal.database.run(workload.transactions(TRANSACTIONS // 4))
            canal.catch_up()
        job.run.must_run()
        assert not job.compare(suite(canal, "after a TRUNCATE"))
    assert job.run.ask("results", job.run.spec["name"]) == []
    canal.database.run(workload.transactions(50))
    if not moves:
        tally.plan(fault)
        canal.kill()
        canal.set_back()
        canal.start()
        tally.fire(fault)
    canal.catch_up()
    job.run.must_run()
    tally.inputs = canal.count(table)
    assert moves or tally.inputs > 2 * sent, "canal has not repeated the history"
    assert sum(epoch.counts.truncations for epoch in job.run.epochs()) == (2 if moves else 4)
    job.check(tally)


def truncate(canal: Canal, workload: Workload) -> None:
    """Empty a table in a second in which nobody else changes it, and let canal read this."""
    canal.database.run(f"DO SLEEP(1.1); TRUNCATE TABLE {workload.table}; DO SLEEP(1.1)")
    canal.catch_up()
    workload.keys.clear()
