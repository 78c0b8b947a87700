"""Jobs behind a real Debezium are exact: snapshot, changes, updated keys, and what it repeats."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.cdc import kinds
from tests.cdc.debezium import Debezium
from tests.cdc.exactness import job_of, load_job
from tests.cdc.workload import Workload, table_definition
from tests.support.faults.tally import FaultTally

pytestmark = [pytest.mark.cdc, pytest.mark.spark, pytest.mark.timeout(1_200)]
SEED = int(os.environ.get("CDC_SEED", "3"))
TRANSACTIONS = 150


def suite(debezium: Debezium, what: str) -> FaultTally:
    tally = FaultTally(f"{debezium.database.kind} and Debezium: {what}")
    tally.further |= {"wrong": 0, "quarantined": 0, "seed": SEED}
    return tally


def started(debezium: Debezium, definition: str, statements: str) -> None:
    """Create a table, run statements, and start Debezium, which begins with a snapshot."""
    debezium.database.run("DROP TABLE IF EXISTS mark")  # of the Debezium before
    debezium.create_table(definition)
    debezium.create_marks()
    debezium.database.run(statements)
    debezium.start()
    debezium.catch_up()


@pytest.mark.parametrize("dedupe", [False, True], ids=["plain", "dedupe"])
def test_a_snapshot_and_updated_primary_keys_are_exact(
    debezium: Debezium, tmp_path: Path, dedupe: bool
) -> None:
    table = "captured_again" if dedupe else "captured"
    killed = ", Debezium killed, dedupe: pk" * dedupe
    tally = suite(debezium, f"snapshot, primary keys updated{killed}")
    workload = Workload(table, SEED, moves=True)
    started(debezium, table_definition(table), workload.transactions(TRANSACTIONS))
    debezium.database.run(workload.transactions(TRANSACTIONS))
    debezium.catch_up()
    sections: dict[str, Any] = {}
    if dedupe:
        tally.plan("kill -9 of Debezium")
        debezium.kill()
        debezium.database.run(workload.transactions(TRANSACTIONS))
        debezium.start()
        debezium.catch_up()
        tally.fire("kill -9 of Debezium")
        sections = {"primary_key": ["id"], "dedupe": "pk"}
    tally.inputs = debezium.count(table)
    job = load_job(debezium, table, tmp_path, **sections)
    job.run.must_run()
    job.check(tally)
    if dedupe:  # without it, what Debezium repeats counts twice, and the audit knows
        plain = load_job(debezium, table, tmp_path)
        plain.run.must_run()
        problems = plain.compare(suite(debezium, "repeats without dedupe"))
        assert plain.audit()["verdict"] == ("undecided" if problems else "equal"), problems[:5]


def test_every_type_is_the_same_in_a_snapshot_and_in_a_change(
    debezium: Debezium, tmp_path: Path
) -> None:
    table = "captured_kinds"
    tally = suite(debezium, f"{len(kinds.CAPTURED)} types")
    started(debezium, kinds.definition(table, kinds.CAPTURED), kinds.changes(table, kinds.CAPTURED))
    debezium.database.run(f"UPDATE {table} SET id = id + 1000 WHERE id % 2 = 1")
    debezium.catch_up()
    views = {"all": kinds.query(table, kinds.CAPTURED)}
    columns = kinds.columns_of(kinds.CAPTURED)
    job = job_of(debezium, [table], tmp_path, views, columns=columns)
    job.run.must_run()
    tally.inputs = debezium.count(table)
    job.check(tally)
