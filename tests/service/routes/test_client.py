"""The client: answers as types, refusals with their codes, streams that survive the service."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest

from jobs.cli.main import main
from schemas.table.explanation import Change
from service.access.tokens import Tokens
from service.client import Client, Columns, Progress, Refused
from tests.support.service.served import SPEC, Served
from tests.support.service.tables import WatchedTable


@pytest.fixture(scope="module")
def watched(served: Served) -> WatchedTable:
    watched = WatchedTable(served)
    watched.write({"a": (1, 5), "{b": (2,)}, {"a": (1,), None: (4,), "{b": (2,)})
    watched.seen()
    return watched


@pytest.fixture
def client(served: Served, watched: WatchedTable) -> Iterator[Client]:
    client = Client(served.address)
    yield client
    client.close()


def test_a_job_is_put_started_stopped_and_deleted(client: Client) -> None:
    assert client.validate("name: x\n" + SPEC).columns[0].name == "name"
    made = client.put("mine", SPEC, create=True)
    assert (made.revision, made.actual, made.failure) == (1, "CREATED", None)
    with pytest.raises(Refused) as there:
        client.put("mine", SPEC, create=True)
    assert (there.value.code, there.value.status) == ("job-exists", 412)
    with pytest.raises(Refused) as wrong:
        client.put("mine", SPEC.replace("v: INT", "v: INTT"))
    assert (wrong.value.code, wrong.value.errors[0]["path"]) == ("spec-invalid", "columns.v")
    assert "columns.v" in str(wrong.value)
    assert client.put("mine", SPEC + "retention: 1d\n", revision=1).revision == 2
    assert client.start("mine").desired == "RUNNING"
    assert client.stop("mine").desired == "STOPPED"
    assert "mine" in [job.name for job in client.jobs()]


def test_the_plan_of_a_job_is_that_of_the_command(
    client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    client.put("planned", SPEC)
    path = tmp_path / "planned.yaml"
    path.write_text("name: planned\n" + SPEC)
    assert main(["plan", str(path), "--json"]) == 0
    nodes = json.loads(capsys.readouterr().out)["nodes"]
    assert msgspec.to_builtins(client.plan("planned")) == nodes
    with pytest.raises(Refused) as unknown:
        client.plan("nobody")
    assert unknown.value.code == "job-unknown"


def test_results_are_one_group_or_all_that_fit(client: Client) -> None:
    assert client.result("items", "a").row == {"name": "a", "total": 1, "top": 1}
    assert client.result("items", "a", as_of="epoch:1").row["total"] == 6
    assert client.result("items", {"name": "{b"}).row["total"] == 2
    assert client.result("items", {"name": None}).epoch == 2
    rows = list(client.results("items", "total>=2", order="-total", page=1))
    assert [row["name"] for row in rows] == [None, "{b"]
    with pytest.raises(Refused) as missing:
        client.result("items", "nobody")
    assert missing.value.code == "group-unknown"
    explained = client.explain("items", "a")
    assert (explained.row_count, explained.history_complete) == (1, True)
    assert [change.op for change in client.history("items", "a").changes] == ["+I", "-U", "+U"]


def test_changes_come_after_a_place_or_after_a_snapshot(client: Client) -> None:
    def epochs(stream: Iterator[Change | Columns | Progress], ends: int) -> list[object]:
        found: list[object] = []
        for each in stream:
            found.append((each.op, each.row["name"]) if isinstance(each, Change) else each.epoch)
            ends -= isinstance(each, Progress)
            if not ends:
                return found
        return found

    later = epochs(client.changes("items", 1), 1)
    assert sorted(map(str, later[:-1])) == ["('+I', None)", "('+U', 'a')", "('-U', 'a')"]
    assert later[-1] == 2
    snapshot = epochs(client.changes("items", snapshot=True), 1)
    assert sorted(map(str, snapshot[:-1])) == ["('+I', 'a')", "('+I', '{b')", "('+I', None)"]
    assert epochs(client.changes("items", 0, key="a"), 2) == [
        ("+I", "a"),
        1,
        ("-U", "a"),
        ("+U", "a"),
        2,
    ]
    with pytest.raises(Refused) as early:
        next(client.changes("items", 99))
    assert early.value.code == "epoch-unknown"


def test_savepoints_and_clones(client: Client) -> None:
    assert client.savepoint("items", "kept").epoch == 2
    assert [each.name for each in client.savepoints("items")] == ["kept"]
    done = client.wait_until_ended(client.clone("items", "twin", "kept"))
    assert (done.state, done.result) == (
        "DONE",
        {"job": "twin", "of": "items", "cloned": 2, "epoch": 1, "groups": 3},
    )
    assert client.until("twin", "STOPPED").spec is not None
    client.delete("twin", drop_data=True)
    assert list(client.quarantine("items")) == []


@pytest.mark.slow
def test_a_stream_goes_on_where_it_was_when_the_service_was_killed(data: Path) -> None:
    served = Served.start(data)
    port = str(urlsplit(served.address).port)
    watched = WatchedTable(served)
    watched.write({"a": (1,)})
    client = Client(served.address)
    stream = client.changes("items", 0)
    seen = [next(stream), next(stream)]  # +I, progress
    for number in range(2, 8):
        served.kill()
        watched.write({"a": tuple(range(1, number + 1))})
        served = Served.start(data, "--port", port)
        watched.served = served
        seen += itertools.islice(stream, 3)  # -U, +U, progress
    changes = [(each.op, each.epoch) for each in seen if isinstance(each, Change)]
    expected = [("+I", 1)] + [(op, epoch) for epoch in range(2, 8) for op in ("-U", "+U")]
    assert changes == expected
    assert served.stop() == 0
    with pytest.raises(ConnectionError):
        next(client.changes("items", 7, patience=0.3))


def test_a_wrong_address_and_a_token(data: Path) -> None:
    with pytest.raises(ValueError, match="is not an address"):
        Client("127.0.0.1:8080")
    token = Tokens(data / "service" / "tokens.json").add("eye", "viewer")
    with Served.start(data) as served:
        with pytest.raises(Refused) as refused:
            Client(served.address).job("x")
        assert refused.value.status == 401
        assert list(Client(served.address, token).jobs()) == []


def test_the_command_shows_and_steers_jobs(
    served: Served,
    watched: WatchedTable,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC)
    there = ["--service", served.address]
    assert main(["jobs", "put", "made", "--spec", str(spec), *there]) == 0
    assert "CREATED" in capsys.readouterr().out
    monkeypatch.setenv("RETALLY_SERVICE", served.address)
    assert main(["jobs", "pause", "made"]) == 0
    assert main(["jobs", "--json"]) == 0
    output = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line[0] == "{"]
    assert {"items", "made"} <= {job["name"] for job in output}
    assert main(["jobs", "show", "nobody"]) == 1
    assert "job-unknown" in capsys.readouterr().err
    assert main(["jobs", "delete", "made"]) == 2
    assert main(["jobs", "delete", "made", "--job-data", "drop"]) == 0
    assert main(["jobs", "--service", "http://127.0.0.1:9"]) == 1
    assert "does retally serve run?" in capsys.readouterr().err
