"""A spec that does not fit the state waits for somebody who says what becomes of the state."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import retally
from jobs.cli.main import main
from retally import Client, Job, Operation, Refused
from schemas.spec.file import load_spec
from service.supervision import job_process
from tests.support.service.served import Served, eventually, problem
from tests.support.service.tables import WatchedTable

LOWEST = "SELECT name, MAX(v) AS top, MIN(v) AS low FROM t GROUP BY name"
OTHER = "SELECT name, SUM(v) AS total FROM t GROUP BY name"


@pytest.fixture
def served(data: Path) -> Iterator[Served]:
    with Served.start(data) as served:
        yield served


@pytest.fixture
def watched(served: Served) -> WatchedTable:
    """A stopped job at its first epoch."""
    watched = WatchedTable(served)
    watched.write({"a": (1, 5)})
    watched.seen()
    return watched


@pytest.fixture
def client(served: Served) -> Client:
    return retally.connect(served.address)


@pytest.fixture
def old(watched: WatchedTable) -> dict[str, Any]:
    """The spec that the job has."""
    return load_spec(watched.table.place.spec).document()


def test_a_changed_query_waits_and_begins_anew_once_it_is_approved(
    watched: WatchedTable, client: Client, old: dict[str, Any]
) -> None:
    watched.write({"a": (1,)})
    watched.seen()
    changed = old | {"query": OTHER}
    with pytest.raises(Refused) as refused:
        client.put(name="items", spec=changed)
    assert (refused.value.code, refused.value.status) == ("query-fixed", 409)
    with pytest.raises(Refused) as nothing:
        client.approve("items")
    assert nothing.value.code == "nothing-pending"

    pending = client.put(name="items", spec=changed, replace=True)
    assert (pending.actual, pending.desired, pending.revision) == (
        "AWAITING_APPROVAL",
        "STOPPED",
        1,
    )
    assert pending.pending is not None and pending.pending["query"] == OTHER
    assert pending.spec is not None and pending.spec["query"] == old["query"]
    with pytest.raises(Refused) as waiting:
        client.start("items")
    assert waiting.value.code == "approval-needed"
    assert client.stop("items").actual == "AWAITING_APPROVAL"
    assert client.group("items", "a").row["top"] == 1  # what is there is there

    taken_back = client.put(name="items", spec=old)
    assert (taken_back.actual, taken_back.pending, taken_back.revision) == ("STOPPED", None, 1)

    client.put(name="items", spec=changed, replace=True)
    approved = client.approve("items", "drop")
    assert isinstance(approved, Job)
    assert (approved.actual, approved.revision, approved.pending) == ("STOPPED", 2, None)
    assert approved.spec is not None and approved.spec["query"] == OTHER
    assert not watched.table.place.table.exists()
    assert eventually(lambda: client.job("items").epoch is None)
    with pytest.raises(Refused) as gone:
        client.group("items", "a")
    assert gone.value.code == "job-has-no-table"
    assert client.start("items").desired == "RUNNING"


@pytest.mark.parametrize(
    ("query", "changes", "command"),
    [
        (LOWEST, "adds low; removes total", "retally approve items --state keep"),
        ("SELECT v, COUNT(*) AS n FROM t GROUP BY v", "GROUP BY changed", "--state replay"),
    ],
)
def test_the_command_line_says_what_waits_and_what_to_do_next(
    query: str,
    changes: str,
    command: str,
    served: Served,
    watched: WatchedTable,
    old: dict[str, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RETALLY_SERVICE", served.address)
    (tmp_path / "changed.json").write_text(json.dumps(old | {"query": query}))
    for words in (f"jobs put {tmp_path}/changed.json --replace", "jobs show items"):
        assert main(words.split()) == 0
        note = capsys.readouterr().err
        assert note.startswith("items: a changed spec is pending approval; ")
        assert changes in note
        assert command in note
    assert main(["jobs"]) == 0
    assert "retally jobs show items says what it changes" in capsys.readouterr().err
    if query == LOWEST:
        assert main(["approve", "items"]) == 0
        said = capsys.readouterr().err
        assert said == "items has the approved spec at epoch 2; start it: retally start items\n"
        assert main(["jobs"]) == 0
        assert capsys.readouterr().err == ""


def test_the_command_line_evolves_a_job_of_a_service(
    served: Served,
    watched: WatchedTable,
    client: Client,
    old: dict[str, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RETALLY_SERVICE", served.address)
    spec = tmp_path / "changed.json"
    filtered = LOWEST.replace("FROM t", "FROM t WHERE v > 1")
    spec.write_text(json.dumps(old | {"query": filtered}))
    assert main(["evolve", str(spec)]) == 1
    assert "retally evolve --replay reads the topic again" in capsys.readouterr().err
    assert client.job("items").pending is None, "what cannot be done is not put"
    spec.write_text(json.dumps(old | {"query": LOWEST}))
    for option in ("--brokers", "--master", "--connections"):
        assert main(["evolve", str(spec), option, "other"]) == 2
        assert "a service has its own --brokers" in capsys.readouterr().err
    assert main(["evolve", str(spec), "--replay"]) == 0  # the state answers it: nothing is read
    assert capsys.readouterr().out.startswith("items is at epoch 2 under the new query (")
    assert client.operations("items", limit=1)[0].arguments["state"] == "keep"
    spec_now = client.job("items").spec
    assert spec_now is not None and spec_now["query"] == LOWEST
    assert main(["evolve", str(spec)]) == 0
    assert capsys.readouterr().out == "items has this query already\n"
    described = old | {"query": LOWEST, "retention": "90d"}
    spec.write_text(json.dumps(described))
    assert main(["evolve", str(spec)]) == 0
    assert capsys.readouterr().out == "items: the spec was saved; the query is the same\n"
    validate = Client.validate

    def change_after(self: Client, spec: Any) -> Any:
        found = validate(self, spec)
        client.put(described | {"retention": "80d"})
        return found

    spec.write_text(json.dumps(old | {"query": filtered}))
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(Client, "validate", change_after)
        assert main(["evolve", str(spec), "--replay"]) == 1
    assert "revision-mismatch" in capsys.readouterr().err
    assert client.job("items").pending is None
    assert main(["evolve", str(spec), "--replay", "--beside"]) == 2
    spec.write_text(json.dumps(old | {"name": "nobody"}))
    assert main(["evolve", str(spec)]) == 1
    assert "nobody has no state" in capsys.readouterr().err


@pytest.mark.parametrize("fate", ["keep", "drop"])
def test_a_deletion_says_what_remains(
    fate: str, served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = {
        "name": "gone",
        "source": {"topic": "t"},
        "columns": {"v": "INT"},
        "query": "SELECT v, COUNT(*) AS n FROM t GROUP BY v",
        "sink": {"topic": "gone-changes"},
    }
    retally.connect(served.address).put(spec)
    words = ["jobs", "delete", "gone", "--job-data", fate, "--service", served.address]
    assert main(words) == 0
    table, *topics = capsys.readouterr().err.splitlines()
    assert table.startswith("deleted gone; ")
    assert ("is kept" in table, len(topics)) == ((True, 0) if fate == "keep" else (False, 1))
    for note in topics:
        assert note.endswith("retally topics delete gone-changes gone-changes-progress")


def test_a_pending_spec_is_approved_only_by_who_has_read_it(
    served: Served, watched: WatchedTable, old: dict[str, Any]
) -> None:
    job = "/v1/jobs/items"
    with served.client() as client:

        def put(query: str, if_match: str) -> httpx.Response:
            body = old | {"query": query}
            return client.put(f"{job}?replace=true", json=body, headers={"If-Match": if_match})

        def drop(if_match: str) -> httpx.Response:
            return client.post(f"{job}/approve?state=drop", headers={"If-Match": if_match})

        read = put(LOWEST, '"1"').headers["etag"]
        assert re.fullmatch('"1-[0-9a-f]{8}"', read)
        assert client.get(job).headers["etag"] == read
        assert put(LOWEST, read).headers["etag"] == read
        other = put(OTHER, read).headers["etag"]
        assert re.fullmatch('"1-[0-9a-f]{8}"', other) and other != read
        for stale in (drop(read), put(LOWEST, read)):
            problem(stale, 412, "revision-mismatch")
            assert stale.headers["etag"] == other
        assert client.get(job).json()["pending"]["query"] == OTHER
        assert watched.table.place.table.exists()

        withdrawn = put(old["query"], other)
        assert (withdrawn.status_code, withdrawn.headers["etag"]) == (200, '"1"')
        problem(put(LOWEST, other), 412, "revision-mismatch")  # nothing is pending any more
        assert put(OTHER, '"1"').headers["etag"] == other
        # A revision that is written by hand names no pending spec.
        assert put(LOWEST, '"1"').headers["etag"] == read
        approved = drop(read)
        assert (approved.status_code, approved.headers["etag"]) == (200, '"2"')
        assert approved.json()["spec"]["query"] == LOWEST


@pytest.mark.slow
def test_a_table_that_cannot_be_read_is_dropped_only_if_that_is_said(
    served: Served,
    watched: WatchedTable,
    client: Client,
    old: dict[str, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    place = watched.table.place
    client.put(name="items", spec=old | {"query": LOWEST}, replace=True)
    newest = max((place.own_table / "_delta_log").glob("*.json"))
    whole = newest.read_bytes()
    newest.write_text("no entry")
    spec = tmp_path / "changed.json"
    spec.write_text(json.dumps(old | {"query": OTHER}))
    assert main(["evolve", str(spec), "--service", served.address]) == 1
    assert "table-unreadable" in capsys.readouterr().err
    for wanted in (None, "keep", "replay"):
        with pytest.raises(Refused) as refused:
            client.approve("items", wanted)
        assert (refused.value.status, refused.value.code) == (409, "table-unreadable")
    with pytest.raises(Refused) as other:
        client.put(name="items", spec=old | {"query": OTHER})
    assert other.value.code == "table-unreadable"
    with served.client() as browser:
        page = browser.get("/jobs/items").text
    assert "The state of the job cannot be read" in page
    assert "approve-dialog" not in page.partition("</section>")[0]
    newest.write_bytes(whole)
    assert client.job("items").evolution is not None
    newest.write_text("no entry")
    assert client.approve("items", "drop")["revision"] == 2
    assert not place.own_table.exists()


@pytest.mark.slow
@pytest.mark.parametrize("way", ["client", "command"])
def test_without_a_table_a_spec_is_approved_at_once(
    way: str,
    served: Served,
    watched: WatchedTable,
    client: Client,
    old: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    client.put(name="items", spec=old | {"query": OTHER}, replace=True)
    shutil.rmtree(watched.table.place.own_table)
    if way == "client":
        assert isinstance(client.approve("items"), Job)
    else:
        assert main(["approve", "items", "--service", served.address, "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == {"job": "items", "state": "drop"}
    job = client.job("items")
    assert (job.revision, job.pending) == (2, None)


@pytest.mark.slow
def test_a_job_that_begins_anew_needs_another_sink_and_stands_still(
    client: Client, old: dict[str, Any]
) -> None:
    old = old | {"sink": {"topic": "out"}}
    client.put(name="items", spec=old)
    with pytest.raises(Refused) as refused:  # other buckets can do nothing but begin anew
        client.put(name="items", spec=old | {"state": {"buckets": 8}}, replace=True)
    assert refused.value.errors[0]["path"] == "sink.topic"
    client.put(name="items", spec=old | {"query": OTHER}, replace=True)
    with pytest.raises(Refused) as refused:
        client.approve("items", "drop")
    assert refused.value.errors[0]["path"] == "sink.topic"
    client.put(name="items", spec=old)
    client.start("items")
    changed = old | {"query": OTHER, "sink": {"topic": "out-2"}}
    pending = client.put(name="items", spec=changed, replace=True)
    assert (pending.desired, pending.actual) == ("RUNNING", "STARTING")
    with pytest.raises(Refused) as running:
        client.approve("items", "drop")
    assert running.value.code == "job-not-stopped"
    assert client.restart("items").desired == "RUNNING"  # under the query that it has


@pytest.mark.slow
def test_the_pending_document_says_what_would_become_of_the_state(
    client: Client, old: dict[str, Any]
) -> None:
    where = "SELECT name, SUM(v) AS total FROM t WHERE v > 1 GROUP BY name"
    pending = client.put(name="items", spec=old | {"query": where}, replace=True)
    found = pending.evolution
    assert found is not None
    assert (found.continues, found.replays, found.begins) == (False, True, False)
    assert (found.added, found.dropped) == ([], ["top"])
    assert found.reasons == ["WHERE changed, and rows that it removed are not kept"]
    assert found.replay_from == {"topics": ["t"], "start": "earliest", "offsets": {"t": {"0": 0}}}
    with pytest.raises(Refused) as choose:
        client.approve("items")
    assert (choose.value.status, choose.value.code) == (409, "state-insufficient")
    assert choose.value.document["choices"] == ["replay", "drop"]
    assert choose.value.errors[0]["message"] == found.reasons[0]

    moved = old | {"source": old["source"] | {"topic": "u"}}
    with pytest.raises(Refused) as refused:
        client.put(name="items", spec=moved)
    assert (refused.value.code, refused.value.errors[0]["path"]) == ("query-fixed", "source.topic")
    found = client.put(name="items", spec=moved, replace=True).evolution
    assert found is not None and (found.continues, found.replays) == (False, True)
    assert found.reasons == ["source.topic changed, and the state has the rows of the old topics"]
    assert found.replay_from == {"topics": ["u"], "start": "earliest", "offsets": {}}

    pending = client.put(name="items", spec=old | {"state": {"buckets": 8}}, replace=True)
    found = pending.evolution
    assert found is not None
    assert (found.replays, found.replay_from) == (False, None)
    with pytest.raises(Refused) as choose:
        client.approve("items", "replay")
    assert choose.value.document["choices"] == ["drop"]


@pytest.mark.slow
def test_a_stopped_job_goes_on_with_its_state_once_that_is_approved(
    client: Client, old: dict[str, Any]
) -> None:
    client.put(name="items", spec=old | {"query": LOWEST, "retention": "1d"}, replace=True)
    operation = client.approve("items")
    assert isinstance(operation, Operation)
    done = client.wait_until_ended(operation)
    assert done.state == "DONE", done
    assert done.result == {"job": "items", "epoch": 2, "changelog_rows": 2}
    assert done.arguments["state"] == "keep"
    job = client.job("items")
    assert (job.actual, job.desired, job.revision, job.pending) == ("STOPPED", "STOPPED", 2, None)
    assert job.spec is not None and job.spec["retention"] == "1d"
    row = eventually(lambda: client.job("items").epoch == 2 and client.group("items", "a"))
    assert row.row == {"name": "a", "top": 5, "low": 1}
    with pytest.raises(Refused) as nothing:
        client.approve("items")
    assert nothing.value.code == "nothing-pending"


class Starting:
    """A job that waits for a broker that is not there: it holds its lock meanwhile."""

    def __init__(self, served: Served) -> None:
        self.watched = WatchedTable(served)
        self.watched.write({"a": (1, 5)})
        self.watched.seen()
        self.client = retally.connect(served.address)
        self.old = load_spec(self.watched.table.place.spec).document()
        self.client.start("items")
        self.pid = eventually(self.holder)
        self.client.put(name="items", spec=self.old | {"query": LOWEST}, replace=True)
        operation = self.client.approve("items", "keep")
        assert isinstance(operation, Operation)
        self.operation = operation
        eventually(lambda: self.client.job("items").actual == "STOPPING")

    def holder(self) -> int | None:
        return job_process.find_writer(self.watched.table.place.lock)


@pytest.mark.slow
def test_a_running_job_stands_still_for_it_and_runs_again(served: Served) -> None:
    job = Starting(served)
    client = job.client
    assert job.holder() == job.pid
    others: list[Callable[[], object]] = [
        lambda: client.put(name="items", spec=job.old),
        lambda: client.approve("items"),
    ]
    for other in others:
        with pytest.raises(Refused) as busy:
            other()
        assert busy.value.code == "operation-unfinished"
    os.killpg(job.pid, signal.SIGKILL)  # it waits for its broker, and would a while longer
    done = client.wait_until_ended(job.operation)
    assert done.state == "DONE", done
    found = client.job("items")
    assert (found.desired, found.revision, found.actual) == ("RUNNING", 2, "STARTING")
    assert eventually(lambda: (now := job.holder()) != job.pid and now)


def test_a_service_that_is_killed_in_between_ends_it_when_it_is_back(
    served: Served, data: Path
) -> None:
    job = Starting(served)
    served.kill()
    os.killpg(job.pid, signal.SIGKILL)
    second = Served.start(data)
    client = retally.connect(second.address)
    try:
        done = client.wait_until_ended(client.operation(job.operation.id))
        assert (done.state, done.result) == (
            "DONE",
            {"job": "items", "epoch": 2, "changelog_rows": 2},
        )
        assert eventually(lambda: client.group("items", "a").row.get("low") == 1)
        assert client.job("items").desired == "RUNNING"
        assert eventually(job.holder)
    finally:
        second.stop()


@pytest.mark.slow
def test_a_job_whose_change_fails_goes_on_as_it_was(served: Served) -> None:
    job = Starting(served)
    client, place = job.client, job.watched.table.place
    text = place.spec.read_text()
    place.spec.write_text("nonsense")
    os.killpg(job.pid, signal.SIGKILL)
    done = client.wait_until_ended(job.operation)
    assert done.state == "FAILED"
    assert done.reason
    place.spec.write_text(text)
    assert eventually(job.holder)
    found = client.job("items")
    assert (found.desired, found.revision) == ("RUNNING", 1)
    assert found.pending is not None and found.pending["query"] == LOWEST
    assert job.watched.table.reader().newest.epoch == 1
