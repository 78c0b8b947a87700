"""A job's query is changed by a command beside the service: index, history and streams go on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.changing.evolve import evolve
from schemas.spec.file import load_spec
from tests.support.service.followers import following
from tests.support.service.served import Served, eventually
from tests.support.service.tables import WatchedTable

JOB = "/v1/jobs/items"
LOWEST = "SELECT name, MAX(v) AS top, MIN(v) AS low FROM t GROUP BY name"


@pytest.fixture
def served(data: Path) -> Iterator[Served]:
    served = Served.start(data)
    yield served
    served.stop()


def changed(watched: WatchedTable, query: str) -> None:
    place = watched.table.place
    done = evolve(place, load_spec(load_spec(place.spec).document() | {"query": query}))
    assert done.row is not None


def test_an_evolved_table_is_followed_under_its_new_query(served: Served) -> None:
    watched = WatchedTable(served)
    watched.write({"a": (1, 5), "b": (2,)}, {"a": (1, 5), "b": (2, 9)})
    watched.seen()
    answers: list[int] = []
    done = threading.Event()

    def ask() -> None:
        with served.client() as client:
            while not done.is_set():
                answers.append(client.get(f"{JOB}/results/a").status_code)
                answers.append(client.get(f"{JOB}/results?order=top").status_code)

    asking = threading.Thread(target=ask)
    asking.start()
    with following(served, since=1) as stream, served.client() as client:
        try:
            first = [next(stream) for _ in range(3)]
            assert [event.kind for event in first] == ["change", "change", "progress"]
            changed(watched, LOWEST)
            output = [next(stream) for _ in range(6)]
        finally:
            done.set()
            asking.join()
        assert [event.kind for event in output] == ["columns", *["change"] * 4, "progress"]
        assert output[0].data == {
            "epoch": 3,
            "columns": {"name": "STRING", "top": "INT", "low": "INT"},
        }
        rows = [(event.data["op"], event.data["row"]) for event in output[1:5]]
        assert rows[:2] == [
            ("-U", {"name": "a", "top": 5, "low": None}),
            ("+U", {"name": "a", "top": 5, "low": 1}),
        ] or rows[2:] == [
            ("-U", {"name": "a", "top": 5, "low": None}),
            ("+U", {"name": "a", "top": 5, "low": 1}),
        ]
        assert set(answers) <= {200, 503}

        job = client.get(JOB).json()
        assert (job["spec"]["query"], job["revision"], job["table"]) == (LOWEST, 2, None)
        assert client.get(f"{JOB}/results/b").json() == {
            "epoch": 3,
            "row": {"name": "b", "top": 9, "low": 2},
        }
        # What was before has the columns of now: a new one was NULL then.
        then = client.get(f"{JOB}/results/b", params={"as_of": "epoch:1"})
        assert then.json() == {"epoch": 1, "row": {"name": "b", "top": 2, "low": None}}
        again = client.get(
            f"{JOB}/changes", params={"since": 2}, headers={"Accept": "application/json"}
        )
        assert len(again.json()["changes"]) == 4
        assert client.put(JOB, json=job["spec"]).json()["revision"] == 2


@pytest.mark.slow
def test_an_index_that_missed_a_query_and_its_return_is_filled_anew(
    served: Served, data: Path
) -> None:
    watched = WatchedTable(served)
    watched.write({"a": (1, 5)})
    watched.seen()
    served.stop()
    changed(watched, LOWEST)
    changed(watched, "SELECT name, MAX(v) AS top FROM t GROUP BY name")
    changed(watched, LOWEST)
    with Served.start(data) as second, second.client() as client:
        found: Any = eventually(
            lambda: (got := client.get(f"{JOB}/results/a")).status_code == 200 and got.json()
        )
        assert found == {"epoch": 4, "row": {"name": "a", "top": 5, "low": 1}}
        assert client.get(JOB).json()["spec"]["query"] == LOWEST
