"""What a real canal sent folds to what its database answered, however the partitions interleave.

`make cdc-test ARGS="-k recording --rewrite"` records anew.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.support.recordings import DIRECTORY, Recording
from tests.support.sampling import quick

RECORDINGS = {path.name.partition(".")[0]: Recording.load(path) for path in DIRECTORY.glob("*.gz")}
# A plain job counts again what canal repeats, and a TRUNCATE stops it.
ONCE = [name for name, made in RECORDINGS.items() if not made.repeats and not made.truncates]
DEDUPE = {"primary_key": ["id"], "dedupe": "pk"}
SEEDS = quick(range(8), [0, 1])


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", sorted(RECORDINGS))
def test_with_dedupe_any_interleaving_is_the_database(name: str, seed: int) -> None:
    assert RECORDINGS[name].problems(seed, **DEDUPE) == []


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", sorted(ONCE))
def test_without_dedupe_any_interleaving_is_the_database(name: str, seed: int) -> None:
    assert RECORDINGS[name].problems(seed) == []


@pytest.mark.parametrize("name", sorted(name for name in RECORDINGS if "kinds" not in name))
def test_with_dedupe_a_row_has_the_time_of_the_message_that_last_changed_it(name: str) -> None:
    recording = RECORDINGS[name]
    last: dict[int, int] = {}
    for message in (json.loads(text) for texts in recording.partitions for text in texts):
        if message["type"] != "DELETE":
            last |= {int(row["id"]): message["es"] for row in message["data"] or ()}
    columns = ", ".join(recording.columns)
    query = f"SELECT {columns}, MAX(__es) AS at FROM {recording.table} GROUP BY {columns}"
    timed = replace(recording, query=query, keys=list(recording.columns))
    rows, _ = timed.folded(1, **DEDUPE)
    assert len(rows) == sum(int(group["n"] or 0) for group in recording.truth)
    assert all(row["at"] == last[row["id"]] for row in rows)
