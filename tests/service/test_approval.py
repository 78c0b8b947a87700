"""A spec that does not fit the state waits for somebody who says that the state may go."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.spec_file import load_spec
from service.client import Client, Refused
from tests.service.served import Served, eventually
from tests.service.tables import WatchedTable

OTHER = "SELECT name, SUM(v) AS total FROM t GROUP BY name"


@pytest.fixture
def served(data: Path) -> Served:
    return Served.start(data)


def test_a_changed_query_waits_and_begins_anew_once_it_is_approved(served: Served) -> None:
    watched = WatchedTable(served)
    watched.write({"a": (1, 5)}, {"a": (1,)})
    watched.seen()
    client = Client(served.address)
    old = load_spec(watched.table.place.spec).document()
    changed = old | {"query": OTHER}
    try:
        with pytest.raises(Refused) as refused:
            client.put("items", changed)
        assert (refused.value.code, refused.value.status) == ("query-fixed", 409)
        with pytest.raises(Refused) as nothing:
            client.approve("items")
        assert nothing.value.code == "nothing-pending"

        pending = client.put("items", changed, replace=True)
        assert (pending.actual, pending.desired, pending.revision) == (
            "AWAITING_APPROVAL", "STOPPED", 1,
        )  # fmt: skip
        assert pending.pending is not None and pending.pending["query"] == OTHER
        assert pending.spec is not None and pending.spec["query"] == old["query"]
        with pytest.raises(Refused) as waiting:
            client.start("items")
        assert waiting.value.code == "approval-needed"
        assert client.stop("items").actual == "AWAITING_APPROVAL"
        assert client.result("items", "a").row["top"] == 1  # what is there is there

        taken_back = client.put("items", old)
        assert (taken_back.actual, taken_back.pending, taken_back.revision) == ("STOPPED", None, 1)

        client.put("items", changed, replace=True)
        approved = client.approve("items")
        assert (approved.actual, approved.revision, approved.pending) == ("STOPPED", 2, None)
        assert approved.spec is not None and approved.spec["query"] == OTHER
        assert not watched.table.place.table.exists()
        assert eventually(lambda: client.job("items").epoch is None)
        with pytest.raises(Refused) as gone:
            client.result("items", "a")
        assert gone.value.code == "job-has-no-table"
        assert client.start("items").desired == "RUNNING"
    finally:
        served.stop()


def test_a_changed_query_needs_another_sink_and_a_stopped_job(served: Served) -> None:
    watched = WatchedTable(served)
    watched.write({"a": (1,)})
    watched.seen()
    client = Client(served.address)
    old = load_spec(watched.table.place.spec).document() | {"sink": {"topic": "out"}}
    try:
        client.put("items", old)
        for changed in (old | {"query": OTHER}, old | {"state": {"buckets": 8}}):
            with pytest.raises(Refused) as refused:
                client.put("items", changed, replace=True)
            assert refused.value.errors[0]["path"] == "sink.topic"
        changed = old | {"query": OTHER, "sink": {"topic": "out-2"}}
        client.start("items")
        with pytest.raises(Refused) as running:
            client.put("items", changed, replace=True)
        assert running.value.code == "job-not-stopped"
    finally:
        served.stop()
