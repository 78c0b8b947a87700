"""A new user's first hour: a topic, its messages, a spec, and the first right number."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jobs.cli.commands import first_hour
from jobs.cli.main import main
from jobs.edge.process.broker import Broker
from tests.support.command.lab import Command, Retally
from tests.support.service.served import Served, end_jobs

pytestmark = pytest.mark.broker

RIDES = [{"id": n, "city": f"c{n % 3}", "fare": f"{n}.50"} for n in range(30)]


@pytest.fixture
def rides(request: pytest.FixtureRequest, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> str:
    """Create a topic and fill it, as the pages say; return its name."""
    monkeypatch.setenv("RETALLY_BROKERS", broker.address)
    topic = f"rides-{abs(hash(request.node.name)) % 10**8}"
    assert main(["topics", "create", topic, "--partitions", "2"]) == 0
    lines = "".join(f"{each['id']}\t{json.dumps(each)}\n" for each in RIDES)
    write_lines(monkeypatch, lines)
    assert main(["topics", "produce", topic, "--key-separator", "\t"]) == 0
    return topic


@contextmanager
def ended_after(process: subprocess.Popen[str], seconds: float) -> Iterator[None]:
    timer = threading.Timer(seconds, process.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def write_lines(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


def test_topics_are_created_filled_shown_and_deleted(
    rides: str, retally: Retally, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, _ = retally("topics", "show", rides, "--json")
    assert (code, json.loads(out)["records"]) == (0, len(RIDES))
    write_lines(monkeypatch, '{"id": 30}\n\n{"id": 31}')
    code, _, err = retally("topics", "produce", rides)
    assert (code, err) == (0, f"wrote 2 messages to {rides}\n")
    assert retally("topics", "delete", rides)[0] == 0
    write_lines(monkeypatch, '{"id": 30}\n')
    for action in ("produce", "delete"):
        code, _, err = retally("topics", action, rides)
        assert (code, f"retally topics create {rides} creates it" in err) == (1, True)
    assert retally("topics", "show")[0] == 2
    assert retally("topics", "list", rides)[0] == 2


def test_options_answer_the_questions_and_the_trial_is_the_query(
    rides: str, retally: Retally, tmp_path: Path
) -> None:
    spec = tmp_path / "job.yaml"
    code, out, err = retally("init", "--topic", rides, "--by", "city", "--out", str(spec))
    assert code == 0, err
    assert "GROUP BY city" in spec.read_text()
    assert retally("validate", str(spec))[0] == 0
    assert out.startswith(spec.read_text())
    groups = [line.split() for line in out[len(spec.read_text()) :].splitlines() if "c" in line]
    assert sum(int(each[-1]) for each in groups if each[0] != "city") == 10, "the newest ten"
    assert f"retally up {spec}" in err
    assert retally("init", "--topic", rides, "--out", str(spec))[0] == 2, "the file is kept"
    code, _, err = retally("init", "--topic", rides, "--by", "town", "--out", f"{spec}2")
    assert (code, "there is no column 'town'; known: id, city, fare" in err) == (1, True)
    code, _, err = retally("init", "--topic", f"{rides}-x", "--out", f"{spec}2")
    assert (code, "known topics" in err) == (1, True)
    code, _, err = retally("init", "--out", f"{spec}2")
    assert (code, "retally init --topic" in err) == (2, True)


def test_a_person_is_asked_three_questions(
    rides: str, retally: Retally, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_hour, "is_terminal", lambda: True)
    spec = tmp_path / "job.yaml"
    write_lines(monkeypatch, f"\n{rides}\ncity\nn\n")
    code, _, err = retally("init", "--out", str(spec))
    assert (code, spec.exists()) == (0, False), err
    questions = ("Which broker? [", "Which topic?", "Count the rows of each? [", "Write")
    assert [err.count(each) for each in questions] == [1, 1, 1, 1]
    write_lines(monkeypatch, "\ny\n")
    code, _, err = retally("init", "--topic", f"{rides}-new", "--out", str(spec))
    assert (code, f"retally topics produce {rides}-new" in err) == (1, True)
    assert retally("topics", "show", f"{rides}-new")[0] == 0, "the topic was created"


@pytest.mark.slow
@pytest.mark.spark
def test_up_prints_the_first_results_and_leaves_the_job_running(
    rides: str, retally: Retally, command: Command, broker: Broker, tmp_path: Path
) -> None:
    spec = tmp_path / "job.yaml"
    assert retally("init", "--topic", rides, "--by", "city", "--out", str(spec))[0] == 0
    try:
        with Served.start(tmp_path / "data", brokers=broker.address) as served:
            shown = command.start("up", str(spec), "--service", served.address, "--json")
            results: dict[str, int] = {}
            assert shown.stdout is not None
            with ended_after(shown, 280):
                for line in shown.stdout:
                    change = json.loads(line)
                    if change["op"] in ("+I", "+U"):
                        results[change["row"]["city"]] = change["row"]["n"]
                    if sum(results.values()) == len(RIDES):
                        break
            assert results == Counter(each["city"] for each in RIDES)
            shown.send_signal(signal.SIGINT)
            _, err = shown.communicate(timeout=30)
            assert "continues to run; retally stop" in err
            assert served.job(rides)["actual"] == "RUNNING"
            with served.client() as client:
                client.post(f"/v1/jobs/{rides}/stop").raise_for_status()
    finally:
        end_jobs(tmp_path / "data")
