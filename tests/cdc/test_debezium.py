"""Jobs behind a real Debezium are exact: snapshot, changes, updated keys, and what it repeats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cdc.debezium import Debezium
from tests.cdc.exactness import load_job
from tests.cdc.workload import Workload, table_definition
from tests.support.faults.tally import FaultTally

pytestmark = [pytest.mark.cdc, pytest.mark.spark, pytest.mark.timeout(1_200)]
SEED = 3
TRANSACTIONS = 150


@pytest.mark.parametrize("dedupe", [False, True], ids=["plain", "dedupe"])
def test_a_snapshot_and_updated_primary_keys_are_exact(
    debezium: Debezium, tmp_path: Path, dedupe: bool
) -> None:
    table = "captured_again" if dedupe else "captured"
    tally = FaultTally(
        f"{debezium.database.kind} and Debezium: snapshot, primary keys updated"
        f"{', Debezium killed, dedupe: pk' * dedupe}",
        further={"wrong": 0, "quarantined": 0, "seed": SEED},
    )
    workload = Workload(table, SEED, moves=True)
    debezium.database.run(f"DROP TABLE IF EXISTS mark; DROP TABLE IF EXISTS {table}")
    debezium.create_table(table_definition(table))
    debezium.create_marks()
    debezium.database.run(workload.transactions(TRANSACTIONS))
    debezium.start()
    debezium.catch_up()
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
