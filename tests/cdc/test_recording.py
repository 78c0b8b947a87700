"""Record a short history of a real canal for `make test`, which has neither database nor canal.

`make cdc-test ARGS="-k recording --rewrite"` writes it; without --rewrite it goes to build/cdc.
"""

from __future__ import annotations

import pytest

from tests.cdc import kinds
from tests.cdc.artifacts import CACHE
from tests.cdc.canal import Canal
from tests.cdc.recorder import recorded
from tests.cdc.workload import COLUMNS, Workload, queries, table_definition
from tests.support.recordings import DIRECTORY, Recording

pytestmark = [pytest.mark.cdc, pytest.mark.broker, pytest.mark.timeout(600)]
SEED = 40
TRANSACTIONS = 60
DEDUPE = {"primary_key": ["id"], "dedupe": "pk"}


def test_a_recording_folds_to_the_rows_of_the_database(
    canal: Canal, request: pytest.FixtureRequest
) -> None:
    moved, again = (Workload(table, SEED, moves=True) for table in ("moved3", "again3"))
    for workload in (moved, again):
        canal.create_table(table_definition(workload.table))
        canal.database.run(workload.transactions(TRANSACTIONS))
    canal.create_table(kinds.definition("kinds3", kinds.KINDS))
    canal.database.run(kinds.changes("kinds3", kinds.KINDS))
    canal.catch_up()
    made = [
        recorded(
            canal, "kinds3", kinds.query("kinds3", kinds.KINDS), kinds.columns_of(kinds.KINDS)
        ),
        recorded(canal, "moved3", queries("moved3")["customer"], COLUMNS),
    ]
    for lost_position in (False, True):
        canal.kill()
        canal.database.run(again.transactions(TRANSACTIONS // 4))
        if lost_position:
            canal.set_back()
        canal.start()
        canal.catch_up()
    made.append(recorded(canal, "again3", queries("again3")["customer"], COLUMNS, repeats=True))

    save(made, canal, request)
    for recording in made:
        for seed in range(3):
            assert not recording.problems(seed, **DEDUPE), recording.table
            assert recording.repeats or not recording.problems(seed), recording.table


def test_a_recording_with_a_truncate_folds_to_the_rows_of_the_database(
    canal: Canal, request: pytest.FixtureRequest
) -> None:
    workload = Workload("cleared3", SEED, moves=True)
    canal.create_table(table_definition(workload.table))
    canal.database.run(workload.transactions(TRANSACTIONS))
    canal.database.run("DO SLEEP(1.1); TRUNCATE TABLE cleared3; DO SLEEP(1.1)")
    canal.catch_up()
    workload.keys.clear()
    canal.database.run(workload.transactions(TRANSACTIONS))
    canal.catch_up()
    made = recorded(canal, "cleared3", queries("cleared3")["customer"], COLUMNS)
    save([made], canal, request)
    assert made.truncates
    for seed in range(3):
        assert not made.problems(seed, **DEDUPE)


def save(made: list[Recording], canal: Canal, request: pytest.FixtureRequest) -> None:
    home = DIRECTORY if request.config.getoption("--rewrite") else CACHE / "recordings"
    for recording in made:
        recording.save(home / f"{canal.database.kind}-{recording.table.rstrip('3')}.json.gz")
