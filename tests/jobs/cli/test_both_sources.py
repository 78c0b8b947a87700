"""A command about a job prints the same from the job's tables and from a service."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest
from kafka import KafkaProducer

from jobs.edge.kafka.admin import KafkaAdmin
from jobs.edge.process.broker import Broker
from jobs.edge.process.job_directory import JobDirectory
from jobs.edge.table.epoch_files import Reject
from jobs.edge.table.file_writer import file_name, write_file
from jobs.reading.parts import QUARANTINE
from schemas.directory.quarantine import Replay, write_replay
from schemas.spec.file import load_spec, spec_text
from schemas.types.sql_types import BIGINT, STRING
from tests.support.command.both_ways import BothWays, adopt, seen, without
from tests.support.command.lab import lines
from tests.support.epoch_rows import epoch_row
from tests.support.sampling import quick
from tests.support.service.served import Served, end_jobs
from tests.support.tables.written_table import WrittenTable

QUERY = "SELECT name, SUM(v) AS total, MAX(v) AS top FROM t GROUP BY name"
BEYOND_DOUBLES = 2**53 + 1
LONG = b'{"type": "INSERT", "data": ["' + b"x" * 3_000 + b'"]}'
REJECTS = [
    Reject("t", 0, 3, 1_700_000_000_123_456, "name is missing", "$.data[0]", b"{}", 2),
    Reject("t", 1, 4, None, "not UTF-8 at byte 0", "$", b"\xff\x00\x1b", 3),
    Reject("t", 1, 5, None, "v: [bold]'x'[/bold]\x1b", "$.data[0].v", LONG, len(LONG)),
    Reject("t", 1, 6, None, "the message is too long", "$", LONG, 9_000_000),
    Reject("t", 1, 7, None, "no value", "$", None, 0),
]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A job of four epochs with refused messages and a savepoint, and a service over it."""
    data = tmp_path_factory.mktemp("both")
    table = WrittenTable(data, QUERY, {"name": STRING, "v": BIGINT})
    table.epoch({("a",): (1, 5), ("{b",): (2,), ("\x1b[31m",): (BEYOND_DOUBLES,)})
    table.epoch({("a",): (1,), (None,): (4,), ("{b",): (2,), ("\x1b[31m",): (BEYOND_DOUBLES, -1)})
    refuse(table, REJECTS)
    sent = Replay(
        id="2-t-1-4",
        fixed=True,
        topic="t",
        partition=1,
        since=9,
        token="0",
        sent_at=1_700_000_000_001,
        offset=12,
    )
    write_replay(table.place.replayed, sent)
    with Served.start(data) as running:
        adopt(running, "items", 2)
        yield running


def refuse(table: WrittenTable, rejects: list[Reject]) -> None:
    """Add refused messages to the newest epoch."""
    epoch = len(table.history) - 1
    rows = table.layout.quarantine_table(epoch, rejects)
    name = file_name(QUARANTINE, epoch, uuid4().hex, "w")
    table.table.commit(
        [write_file(table.place.table, name, rows)], uuid=uuid4().hex, what="refused messages"
    )


@pytest.fixture
def both(served: Served, capsys: pytest.CaptureFixture[str]) -> BothWays:
    return BothWays(served, capsys)


FORMS = [[], ["--json"], ["-o", "csv"]]


@pytest.mark.parametrize("form", quick(FORMS, [[]]), ids=["text", "json", "csv"])
@pytest.mark.parametrize(
    "words",
    [
        "results items",
        "results items --epoch 1",
        "results items --epoch 0",
        "results items --key a",
        'results items --key {"name":null}',
        "results items --key nobody",
        "results items --key nobody --epoch 1",
        "results items --where total>1",
        "results items --where total<=6 --where top!=2",
        "results items --where name^=a",
        "results items --order=-total,name --limit 2",
        "results items --order=name --limit 0 --epoch 1",
        "results items --time 2100-01-01",
        "results items --time 2100-01-01T00:00:00+01:00 --limit 1",
        "changes items --key a",
        "changes items --since 1 --key nobody",
        "diff items --from 0",
        "diff items --from 1 --to 2",
        "diff items --from 2 --to 1",
        "diff items --from 1 --to 1",
        "changes items",
        "changes items --since 1",
        "changes items --since 2",
        "changes items --since 99",
        "explain items a",
        "explain items \x1b[31m",
        'explain items {"name":null}',
        "quarantine items",
        "savepoint items --list",
        "offsets items",
    ],
)
def test_both_sources_print_the_same(words: str, form: list[str], both: BothWays) -> None:
    code, out, _ = both.same(*words.split(), *form)
    assert code == 0
    assert form == ["-o", "csv"] or "\x1b" not in out


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("results nothing", 1),
        ("results items --epoch 99", 1),
        ("diff items --from 99", 1),
        ("results items --key a --limit 1", 2),
        ('results items --key {"nam":1}', 2),
        ("explain items nobody", 1),
        ("savepoint items --name ../x", 2),
        ("savepoint items --name 12", 2),
        ("savepoint items --delete nothing", 1),
        ("offsets items --set nonsense", 2),
        ("quarantine items --again", 2),
        ("quarantine items --message -", 2),
        ("clone items items", 1),
    ],
)
def test_both_sources_fail_with_the_same_exit_code(words: str, code: int, both: BothWays) -> None:
    for found, out, err in (both.by_tables(*words.split()), both.by_service(*words.split())):
        assert (found, out) == (code, "")
        assert err.startswith("retally: ")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("results items --where totl>1", "have no column 'totl'; they have name, total, top"),
        ("results items --where total", "'total' is not a condition; write total>=10"),
        ("results items --where total>x", "total is BIGINT"),
        ("results items --order=-nam", "have no column 'nam'"),
    ],
)
def test_a_bad_condition_is_refused_in_the_words_of_the_command_line(
    words: str, text: str, both: BothWays
) -> None:
    code, out, err = both.same(*words.split())
    assert (code, out) == (2, "")
    assert err.startswith("retally: --")
    assert text in err


@pytest.mark.parametrize(
    "form", quick([*FORMS, ["-o", "document"], ["--format", "document"]], [[]]), ids=" ".join
)
def test_a_statement_is_answered_the_same(form: list[str], both: BothWays) -> None:
    sql = "SELECT name, {'top': top, 'totals': [total]} AS row FROM items WHERE name = 'a'"
    code, out, err = both.same("sql", sql, *form)
    assert (code, err) == (0, 'epochs: {"items": 2}\n')
    assert '{"top":1,"totals":[1]}' in out.replace('""', '"').replace(" ", "")


@pytest.mark.parametrize(
    ("query", "code", "said"),
    [
        (QUERY.replace("FROM", ", MIN(v) AS low FROM"), 0, "new: low\n"),
        (QUERY.replace("FROM t", "FROM t WHERE v > 1"), 1, "(retally evolve --replay):\n- "),
        (QUERY, 0, "can continue with its state"),
    ],
)
def test_both_sources_know_what_a_changed_query_needs(
    query: str, code: int, said: str, both: BothWays, tmp_path: Path
) -> None:
    spec = tmp_path / "changed.json"
    old = load_spec(JobDirectory(both.served.data, "items").spec).document()
    spec.write_text(json.dumps(old | {"query": query}))
    found, out, err = both.same("evolve", str(spec), "--check")
    assert (found, err) == (code, "")
    assert said in out
    both.same("evolve", str(spec), "--check", "-o", "csv")
    assert both.served.job("items")["pending"] is None, "a check changes nothing"


def test_a_put_shows_the_epoch_and_groups_of_a_table_and_waits_for_approval(
    both: BothWays, tmp_path: Path
) -> None:
    data, spec = tmp_path / "data", tmp_path / "items.yaml"
    data.mkdir()
    table = WrittenTable(data, QUERY, {"name": STRING, "v": BIGINT})
    table.epoch({("a",): (1, 5), ("b",): (2,)}, groups=2)
    text = spec_text(load_spec(table.place.spec))
    spec.write_text(text)
    with Served.start(data) as running:
        put = ("jobs", "put", "items", "--spec", str(spec), "--service", running.address)
        code, out, err = both.call(*put, "--json")
        assert code == 0, err
        assert (lines(out)[0]["epoch"], lines(out)[0]["groups"]) == (1, 2)
        spec.write_text(text.replace("FROM t", "FROM t WHERE v > 1"))
        code, _, err = both.call(*put)
        assert code == 1
        assert "--replace" in err
        assert "?" not in err
        assert "\\u000a" not in err
        code, out, err = both.call(*put, "--replace", "--json")
        assert code == 0, err
        assert lines(out)[0]["actual"] == "AWAITING_APPROVAL"
        approve = ("approve", "items", "--service", running.address)
        code, _, err = both.call(*approve, "--state", "keep")
        assert code == 1
        assert "--state replay or --state drop" in err
        assert both.call(*approve, "--state", "drop")[0] == 0
        assert "v > 1" in running.job("items")["spec"]["query"]
        spec.write_text(text.replace("SUM(v)", "SUM(w)"))
        code, _, err = both.call(*put)
        assert code == 2
        assert err.startswith(f"{spec}:")
        assert "unknown column `w`" in err
        assert err.splitlines()[-1].endswith("^")


def test_whole_numbers_are_numbers_and_bytes_are_whole(both: BothWays) -> None:
    rows = {row["name"]: row for row in both.same_documents("results", "items")}
    assert rows["\x1b[31m"] == {"name": "\x1b[31m", "total": 2**53, "top": BEYOND_DOUBLES}
    (document,) = both.same_documents("explain", "items", "\x1b[31m")
    (argument,) = document["arguments"]
    assert BEYOND_DOUBLES in [entry["value"] for entry in argument["multiset"]]
    plain, binary, long, cut, empty = both.same_documents("quarantine", "items")
    assert (plain["time"], plain["raw"], plain["replayed"]) == (
        "2023-11-14T22:13:20.123Z",
        "{}",
        None,
    )
    assert (binary["raw_base64"], binary["replayed"]["sent_at"]) == (
        "/wAb",
        "2023-11-14T22:13:20.001Z",
    )
    assert (long["raw"], long["cut"], cut["cut"], empty["raw"]) == (
        LONG.decode(),
        False,
        True,
        None,
    )


def test_a_savepoint_is_created_listed_and_deleted(both: BothWays) -> None:
    (made,) = both.same_documents("savepoint", "items")  # the same again: it has the epoch's name
    assert made["name"] == "epoch-2"
    assert both.same("savepoint", "items") == (0, "epoch-2: epoch 2, 0 groups\n", "")
    assert both.same_documents("savepoint", "items", "--list") == [made]
    assert both.by_tables("savepoint", "items", "--name", "epoch-2")[0] == 1
    assert both.by_service("savepoint", "items", "--name", "epoch-2")[0] == 1
    deleted = both.by_service("savepoint", "items", "--delete", "epoch-2")
    both.by_tables("savepoint", "items")
    assert both.by_tables("savepoint", "items", "--delete", "epoch-2") == deleted
    assert deleted == (0, "", "deleted savepoint epoch-2\n")


@pytest.mark.slow
def test_a_clone_is_reported_the_same_and_the_service_tells_by_whom(both: BothWays) -> None:
    copy = JobDirectory(both.served.data, "copy").home
    for form in ["--json"], []:
        by_tables = both.by_tables("clone", "items", "copy", *form)
        shutil.rmtree(copy)
        assert both.by_service("clone", "items", "copy", *form) == by_tables
        assert by_tables[0] == 0
        both.call("jobs", "delete", "copy", "--job-data", "drop", "--service", both.served.address)
    assert by_tables[1].startswith("copy begins with the 4 groups that items had at epoch 2")
    code, out, err = both.by_service("operations", "items", "--json")
    assert code == 0, err
    assert lines(out)[0]["kind"] == "clone"
    assert "clone" in both.by_service("operations", "items")[1]
    code, out, _ = both.by_service("audit-log", "--limit", "5", "--json")
    assert code == 0
    assert "/v1/jobs/items/clone" in [line["path"] for line in lines(out)]
    assert "POST /v1/jobs/items/clone" in both.by_service("audit-log")[1]


def test_offsets_moved_by_hand_and_a_cleaned_changelog_are_noted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = WrittenTable(tmp_path, QUERY, {"name": STRING, "v": BIGINT})
    for number in range(1, 5):
        table.epoch({("a",): (number,)})
    table.forget(2)
    moved = epoch_row(
        5,
        table.plan,
        kind="offsets",
        offsets={"t": {"0": 7}},
        counters={"changelog_rows": 0, "moved": 5},
    )
    table.table.commit_epoch(moved, [])
    with Served.start(tmp_path) as served:
        adopt(served, "items", 5)
        both = BothWays(served, capsys)
        for words in ("results items", "results items --key a", "offsets items", "explain items a"):
            answer = both.same(*words.split())
            assert "moved by hand at epoch 5" in "".join(answer[1:])
        assert both.same_documents("offsets", "items")[0]["moved"] == 5
        assert "moved" not in both.same("results", "items", "--epoch", "4")[2]
        changes = both.same_documents("changes", "items")
        assert [change["epoch"] for change in changes] == [3, 3, 4, 4]
        assert both.by_tables("changes", "items", "--since", "1")[0] == 1
        assert both.by_service("changes", "items", "--since", "1")[0] == 1


@pytest.mark.slow
def test_a_job_that_runs_is_owned_by_another_writer(both: BothWays) -> None:
    at = ("--service", both.served.address)
    assert both.call("start", "items", *at)[0] == 0
    try:
        for words in ("rewind items --to 1", "offsets items --reset"):
            code, out, err = both.by_service(*words.split())
            assert (code, out) == (75, "")
            assert "stop it first" in err
    finally:
        assert both.call("stop", "items", "--wait", "60", *at)[0] == 0


# --- with a broker --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.broker
def test_changes_of_a_stopped_job_are_reported_the_same(
    tmp_path: Path,
    broker: Broker,
    topic: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same commands, on two copies of a job: one by its tables, one by the service."""
    monkeypatch.setenv("RETALLY_BROKERS", broker.address)
    with KafkaAdmin({"bootstrap_servers": [broker.address]}) as admin:
        admin.ensure_topic(topic, 1, {})
    with closing(KafkaProducer(bootstrap_servers=broker.address)) as producer:
        for _ in range(30):
            producer.send(topic, b"{}", partition=0)
    first, second = tmp_path / "tables", tmp_path / "service"
    table = WrittenTable(first, QUERY, {"name": STRING, "v": BIGINT}, topic=topic)
    refuse(table, [Reject(topic, 0, 0, None, "v: 'x'", "$", b"{}", 2)])
    table.epoch({("a",): (1, 5)})
    table.epoch({("a",): (1,), ("b",): (2,)})
    shutil.copytree(first, second)
    served = Served.start(second, brokers=broker.address)
    fixed = tmp_path / "fixed.json"
    message = {"type": "INSERT", "database": "d", "table": "t", "es": 1}
    message["data"] = [{"name": "\u00fc", "v": "7"}]
    fixed.write_bytes(json.dumps(message, ensure_ascii=False).encode())
    try:
        adopt(served, "items", 2)
        both = BothWays(served, capsys)

        def same(newest: int, *arguments: str) -> tuple[int, str, str]:
            by_service = both.by_service(*arguments)
            assert both.call(*arguments, "--data", str(first)) == by_service
            seen(served, "items", newest)
            return by_service

        elsewhere = ("offsets", "items", "--reset", "--at", "1")
        assert both.by_service(*elsewhere)[:2] == (1, "")
        assert both.call(*elsewhere, "--data", str(first))[:2] == (1, "")
        assert same(3, "offsets", "items", "--reset", "--json")[0] == 0
        assert "is at epoch 4" in same(4, "offsets", "items", "--set", f"{topic}/0=7")[2]
        assert same(5, "rewind", "items", "--to", "1", "--json")[0] == 0
        assert "is at epoch 6, with" in same(6, "rewind", "items", "--to", "2")[1]
        assert same(6, "rewind", "items", "--to", "6")[1] == "items is at epoch 6 already\n"
        for words in ("results items", "changes items"):
            assert same(6, *words.split())[0] == 0
        replay = ("quarantine", "items", "--replay", f"0-{topic}-0-0")
        assert both.by_service(*replay)[0] == 1  # the job would refuse it again
        several = (*replay, "--replay", "9-x-0-0", "--json")
        by_service = both.by_service(*several)
        assert by_service == both.call(*several, "--data", str(first))
        assert by_service[0] == 1
        assert list(json.loads(by_service[1])["refused"]) == [f"0-{topic}-0-0", "9-x-0-0"]
        sent = [
            json.loads(answer[1])
            for answer in (
                both.by_service(*replay, "--message", str(fixed), "--json"),
                both.call(*replay, "--message", str(fixed), "--json", "--data", str(first)),
            )
        ]
        assert [each["offset"] for each in sent] == [30, 31]
        known = without(sent, "offset", "since", "token", "sent_at")
        assert known[0] == known[1]
        assert both.by_service(*replay, "--message", str(fixed))[0] == 1
        again = both.by_service(*replay, "--message", str(fixed), "--again")
        assert again[2] == f"message 0-{topic}-0-0 is now offset 32 of {topic}/0\n"
    finally:
        assert served.stop() == 0
        end_jobs(second)
