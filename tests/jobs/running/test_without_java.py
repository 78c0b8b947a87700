"""A machine without Java: the set-up installs one, and a job on it is exact in table and topic."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.edge.machine import jars
from jobs.edge.process.broker import Broker
from tests.support.jobs.canal_messages import delete, insert, row
from tests.support.jobs.running_job import CHECKOUT, RunningJob, consumed, create_topic, produce

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.faults]

_SET_UP = (
    "from jobs.setup import steps; from setup.install import environment; "
    "steps.install_java(environment()); steps.archive_classes(environment())"
)


@pytest.fixture
def no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This checkout's jars in a directory of their own, and a PATH with everything but Java."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for directory in reversed(os.environ["PATH"].split(os.pathsep)):
        for program in Path(directory).glob("*"):
            if not program.name.startswith("java"):
                (programs / program.name).unlink(missing_ok=True)
                (programs / program.name).symlink_to(program)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.delenv("JAVA_HOME")
    own = tmp_path / ".jars"
    own.mkdir()
    for name in (jars.MANIFEST, "spark", "broker"):
        (own / name).symlink_to(jars.directory() / name)
    monkeypatch.setenv("RETALLY_JARS", str(own))
    return tmp_path


def doctor() -> str:
    return _python("-m", "jobs.cli.main", "doctor").stdout


def _python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=CHECKOUT, capture_output=True, text=True, timeout=280
    )


def test_the_set_up_installs_a_java_and_a_job_on_it_is_exact(no_java: Path, topic: str) -> None:
    assert "BAD java: no java in the PATH: install a JDK" in doctor()
    done = _python("-c", _SET_UP)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"no java in the PATH: installing one (38 MB) in {no_java / '.java'}" in done.stdout
    assert (no_java / ".jars" / "spark.jsa").exists(), done.stdout
    assert f"ok  java: {no_java / '.java' / 'bin' / 'java'}" in doctor()

    with Broker(no_java / "broker") as broker:
        create_topic(broker.address, topic, 2)
        job = RunningJob(
            {
                "name": "items",
                "source": {"topic": topic},
                "columns": {"k": "STRING", "v": "INT"},
                "query": "SELECT k, SUM(v) AS s, MAX(v) AS top FROM t GROUP BY k",
                "sink": {"topic": f"{topic}-changes", "partitions": 2},
                "state": {"buckets": 2},
            },
            no_java / "job",
            broker.address,
            warm=False,
        )
        produce(broker.address, topic, [(0, insert(row("a", 1), row("a", 5), row("b", 2)))])
        code, said = job.run()
        assert code == 0, said
        assert "incubator" not in said
        assert not [line for line in said.splitlines() if line.startswith("WARNING")], said
        produce(broker.address, topic, [(0, delete(row("a", 5), row("b", 2)))])
        job.must_run()
        assert [(r["k"], r["s"], r["top"]) for r in job.ask("results", "items")] == [("a", 1, 1)]
        output = [record["value"] for record in consumed(broker.address, f"{topic}-changes")]
        folded = {
            each["row"]["k"]: each["row"]
            for each in sorted(output, key=lambda each: (each["epoch"], each["seq"]))
        }
        assert sorted(each["op"] for each in output) == ["+I", "+I", "+U", "-D", "-U"]
        assert folded["a"] == {"k": "a", "s": 1, "top": 1}
