"""What time does to results, as the service sees it: groups that expire, results that wait."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from jobs.core.fold.rules import Rules
from tests.support.service.served import Served, eventually, problem
from tests.support.tables.folded_table import FoldedTable, insert
from tests.support.tables.written_table import timed

JOB = "/v1/jobs/items"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with Served.start(tmp_path) as running:
        yield running


def followed(served: Served, tmp_path: Path, rules: Rules) -> FoldedTable:
    made, reader = timed(tmp_path, rules)
    with served.client() as client:
        spec = reader.spec.document()
        assert client.put(JOB, json=spec).status_code == 201
    return made


def names(client: httpx.Client, epoch: int, **params: Any) -> list[str]:
    asked = {"min_epoch": epoch, **params}
    answer = client.get(f"{JOB}/results", params=asked)
    assert answer.status_code == 200, answer.text
    return [row["name"] for row in answer.json()["rows"]]


@pytest.mark.slow
def test_groups_that_leave_without_a_word_leave_the_results(served: Served, tmp_path: Path) -> None:
    made = followed(served, tmp_path, Rules(ttl_ms=10, emit_expired=False))
    with served.client() as client:
        made.epoch(insert("a", 1), counters={"changelog_rows": 1})
        assert names(client, 1) == ["a"]
        made.time_epoch(10, counters={"changelog_rows": 0, "expired_silently": 1})
        assert names(client, 2) == []
        made.epoch(insert("b", 1), counters={"changelog_rows": 1})
        assert names(client, 3) == ["b"]
        assert names(client, 3, as_of="epoch:1") == ["a"]  # the index still knows
        problem(client.get(f"{JOB}/diff?from=1"), 410, "history-gone")
    served.kill()
    (index,) = (tmp_path / "service" / "jobs" / "items" / "index").glob("*.sqlite")
    index.unlink()
    with Served.start(tmp_path) as again, again.client() as client:
        eventually(lambda: again.job("items")["epoch"] == 3)
        assert names(client, 3) == ["b"]
        gone = client.get(f"{JOB}/results", params={"as_of": "epoch:1"})
        assert problem(gone, 410, "history-gone")["oldest"] == 2


def test_results_that_are_withheld_are_not_shown(served: Served, tmp_path: Path) -> None:
    made = followed(served, tmp_path, Rules(withhold=True))
    with served.client() as client:
        made.epoch(insert("a", 1), counters={"changelog_rows": 0})
        assert names(client, 1) == []
        made.time_epoch(release=True, counters={"changelog_rows": 1})
        assert names(client, 2) == ["a"]
        made.epoch(insert("a", 5) + insert("b", 2), counters={"changelog_rows": 0})
        assert names(client, 3) == ["a"]
        assert client.get(f"{JOB}/results/a").json()["row"]["n"] == 1
        seen = client.get(f"{JOB}/results/a/explain").json()
        unseen = client.get(f"{JOB}/results/b/explain").json()
        assert (seen["withheld"], seen["row_count"], seen["row"]["n"]) == (True, 2, 1)
        assert (unseen["withheld"], unseen["row_count"], unseen["row"]) == (True, 1, None)
