"""The client on a real service: answers, refusals, DataFrames, streams that survive the service."""

from __future__ import annotations

import asyncio
import doctest
import itertools
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import retally
from jobs.cli.main import main
from retally import Change, Client, Progress, Refused
from retally.following import Event
from service.access.tokens import Tokens
from tests.support.service.served import SPEC, Served
from tests.support.service.tables import WatchedTable

CLIENTS = Path(__file__).resolve().parents[3] / "docs" / "clients.md"


@pytest.fixture(scope="module")
def watched(served: Served) -> WatchedTable:
    watched = WatchedTable(served)
    watched.write({"a": (1, 5), "{b": (2,)}, {"a": (1,), None: (4,), "{b": (2,)})
    watched.seen()
    return watched


@pytest.fixture
def client(served: Served, watched: WatchedTable) -> Iterator[Client]:
    client = retally.connect(served.address)
    yield client
    client.close()


def test_a_job_is_put_started_stopped_and_deleted(client: Client) -> None:
    assert client.validate("name: x\n" + SPEC).columns[0].name == "name"
    made = client.put(name="mine", spec=SPEC, create=True)
    assert (made.revision, made.actual, made.failure) == (1, "CREATED", None)
    with pytest.raises(Refused) as there:
        client.put(name="mine", spec=SPEC, create=True)
    assert (there.value.code, there.value.status) == ("job-exists", 412)
    with pytest.raises(Refused) as wrong:
        client.put(name="mine", spec=SPEC.replace("v: INT", "v: INTT"))
    assert (wrong.value.code, wrong.value.errors[0]["path"]) == ("spec-invalid", "columns.v")
    assert "columns.v" in str(wrong.value)
    assert client.put(name="mine", spec=SPEC + "retention: 1d\n", revision=1).revision == 2
    assert client.start("mine").desired == "RUNNING"
    assert client.stop("mine").desired == "STOPPED"
    assert "mine" in [job.name for job in client.jobs()]


def test_jobs_are_listed_by_a_label(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = {"labelled-a": ["stock", "weekly"], "labelled-b": ["weekly"], "labelled-c": ["week"]}
    for name, labels in wanted.items():
        client.put(name=name, spec=f"{SPEC}labels: {labels}\n")
    client.put(name="weekly", spec=SPEC)
    assert [job.name for job in client.jobs(label="weekly")] == ["labelled-a", "labelled-b"]
    assert client.jobs(label="nobody") == client.jobs("FAILED", label="weekly") == []
    command = ["jobs", "--label", "stock", "-o", "json", "--service", client.address]
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "labelled-a"


def test_the_plan_of_a_job_is_that_of_the_command(
    client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    client.put(name="planned", spec=SPEC)
    path = tmp_path / "planned.yaml"
    path.write_text("name: planned\n" + SPEC)
    assert main(["plan", str(path), "--json"]) == 0
    nodes = json.loads(capsys.readouterr().out)["nodes"]
    assert client.plan("planned") == nodes
    with pytest.raises(Refused) as unknown:
        client.plan("nobody")
    assert unknown.value.code == "job-unknown"


def test_results_are_one_group_or_all_that_fit(client: Client) -> None:
    assert client.group("items", "a").row == {"name": "a", "total": 1, "top": 1}
    assert client.group("items", "a", as_of=1).row["total"] == 6
    assert client.group("items", {"name": "{b"}).row["total"] == 2
    assert client.group("items", {"name": None}).epoch == 2
    rows = client.results("items", where="total>=2", order="-total").rows()
    assert [row["name"] for row in rows] == [None, "{b"]
    with pytest.raises(Refused) as missing:
        client.group("items", "nobody")
    assert missing.value.code == "group-unknown"
    explained = client.explain("items", "a")
    assert (explained.row_count, explained.history_complete) == (1, True)
    assert [change.op for change in client.history("items", "a").changes] == ["+I", "-U", "+U"]
    (differing,) = [each for each in client.diff("items", 1, 2) if each.key == {"name": "a"}]
    assert (differing.before or {})["top"] == 5
    with pytest.raises(Refused) as dots:  # a name that a path would drop with its neighbour
        client.group("items", "..")
    assert dots.value.code == "group-unknown"


def test_pages_of_rows_and_of_arrow_are_one_table(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = client.results("items", order="total")
    rows = whole.rows()
    monkeypatch.setattr("retally.results.PAGE_ROWS_MAX", 2)
    paged = client.results("items", order="total")
    assert paged.rows() == rows == paged.to_arrow().to_pylist() == list(paged)
    assert (whole.epoch, paged.epoch) == (2, 2)
    assert str(paged.to_arrow().schema.field("total").type) == "int32"
    assert paged.to_pandas()["total"].sum() == 7
    for limit in range(1, 4):
        some = client.results("items", order="total", limit=limit)
        assert some.rows() == rows[:limit] == some.to_arrow().to_pylist()
    nothing = client.results("items", where=["total>5", "total<5"])
    assert (nothing.rows(), nothing.to_arrow().num_rows) == ([], 0)


def test_a_client_waits_for_an_epoch_that_comes(client: Client, watched: WatchedTable) -> None:
    assert client.wait("items", epoch=2) == 2
    with pytest.raises(TimeoutError, match="epoch 99 was not reached"):
        client.wait("items", epoch=99, seconds=0.2)
    with pytest.raises(TypeError):
        client.wait("items")
    with pytest.raises(Refused) as unknown:
        client.wait("nobody", epoch=1)
    assert (unknown.value.code, unknown.value.retryable) == ("job-unknown", False)


async def _use_coroutines(address: str) -> None:
    async with retally.connect_async(address) as client:
        one, two = await asyncio.gather(client.group("items", "a"), client.job("items"))
        assert (one.row["total"], two.name) == (1, "items")
        found = client.results("items", where="total>=2")
        assert sorted([row["total"] async for row in found]) == [2, 4]
        assert (await found.to_arrow()).num_rows == len(await found.rows()) == 2
        async with aclosing(client.follow("items", 0)) as events:
            ended = [each.epoch async for each in take(events, 7) if isinstance(each, Progress)]
        assert ended == [1, 2]
        with pytest.raises(Refused):
            await client.job("nobody")


async def take(events: AsyncIterator[Event], ends: int) -> AsyncIterator[Event]:
    async for event in events:
        yield event
        ends -= 1
        if not ends:
            return


def test_the_same_methods_are_coroutines(served: Served, watched: WatchedTable) -> None:
    asyncio.run(_use_coroutines(served.address))


def test_the_examples_of_the_package_and_its_document_run(
    served: Served, client: Client, tmp_path: Path
) -> None:
    names = {"url": served.address, "token": None, "retally": retally, "client": client}
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    for name, text in (("retally", retally.__doc__ or ""), ("clients.md", CLIENTS.read_text())):
        text = text.replace("```", "")
        runner.run(doctest.DocTestParser().get_doctest(text, names, name, name, 0))
    assert runner.summarize().attempted > 10
    assert runner.failures == 0


def test_changes_come_after_a_place_or_after_a_snapshot(client: Client) -> None:
    def epochs(stream: Iterator[Event], ends: int) -> list[object]:
        found: list[object] = []
        for each in stream:
            if isinstance(each, Change):
                found.append((each.op, each.row["name"]))
            elif isinstance(each, Progress):
                found.append(each.epoch)
                ends -= 1
            if not ends:
                return found
        return found

    later = epochs(client.follow("items", 1), 1)
    assert sorted(map(str, later[:-1])) == ["('+I', None)", "('+U', 'a')", "('-U', 'a')"]
    assert later[-1] == 2
    snapshot = epochs(client.follow("items", snapshot=True), 1)
    assert sorted(map(str, snapshot[:-1])) == ["('+I', 'a')", "('+I', '{b')", "('+I', None)"]
    assert epochs(client.follow("items", 0, key="a"), 2) == [
        ("+I", "a"),
        1,
        ("-U", "a"),
        ("+U", "a"),
        2,
    ]
    with pytest.raises(Refused) as early:
        next(client.follow("items", 99))
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
    client = retally.connect(served.address)
    stream = client.follow("items", 0)
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
    with pytest.raises(retally.Unreachable):
        next(client.follow("items", 7, patience=0.3))


def test_a_wrong_address_and_a_token(data: Path) -> None:
    with pytest.raises(ValueError, match="is not an address"):
        retally.connect("127.0.0.1:8080")
    token = Tokens(data / "service" / "tokens.json").add("eye", "viewer")
    with Served.start(data) as served:
        with pytest.raises(Refused) as refused:
            retally.connect(served.address).job("x")
        assert refused.value.status == 401
        assert list(retally.connect(served.address, token).jobs()) == []


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
