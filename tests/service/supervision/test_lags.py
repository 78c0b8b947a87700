"""The lags of jobs: one without its topic does not hide those of the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.edge.process.broker import Broker
from schemas.directory.file_log import file_log_path
from schemas.documents.answers import Lag
from schemas.spec.connections import load_connections
from schemas.spec.file import load_spec
from schemas.spec.job import JobSpec
from schemas.table.epoch import EpochRow
from service.supervision import lags as module
from service.supervision.lags import Lags
from tests.support.epoch_rows import epoch_row
from tests.support.jobs.canal_messages import insert, row
from tests.support.jobs.running_job import create_topic, produce
from tests.support.service.served import eventually

pytestmark = pytest.mark.broker


def job(name: str, topic: str) -> tuple[str, JobSpec, EpochRow]:
    spec = load_spec(
        {
            "name": name,
            "source": {"topic": topic},
            "columns": {"k": "STRING"},
            "query": "SELECT k, COUNT(*) AS n FROM t GROUP BY k",
        }
    )
    return name, spec, epoch_row(1, offsets={topic: {"0": 0}})


def test_a_job_without_its_topic_leaves_the_lags_of_the_others(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    create_topic(broker.address, topic, 1)
    produce(broker.address, topic, [(0, insert(row("a", 1)))])
    jobs = [job("a-gone", f"{topic}-gone"), job("b-there", topic), job("c-there", topic)]
    measured: set[str] = set()
    lags = Lags(tmp_path, load_connections(None, broker.address), lambda: jobs, measured.add)
    lags.start()
    try:
        eventually(lambda: measured == {"b-there", "c-there"})
        assert lags.compute_lag("a-gone", jobs[0][1], jobs[0][2]) is None
        for name, spec, newest in jobs[1:]:
            assert lags.compute_lag(name, spec, newest) == Lag(1, {f"{topic}/0": 1})
    finally:
        lags.close()


def test_the_lag_of_files_is_what_the_job_has_noticed_and_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_INTERVAL_SECONDS", 0.05)
    document = {
        "name": "of-files",
        "source": {"files": {"path": "/in"}},
        "columns": {"k": "STRING"},
        "query": "SELECT k, COUNT(*) AS n FROM t GROUP BY k",
    }
    spec, newest = load_spec(document), epoch_row(1, offsets={"/in": {"0": 0}})
    log = file_log_path(tmp_path, "/in", header=False)
    log.parent.mkdir()
    log.write_text(
        '{"id": "1", "path": "/in"}\n["a", 9, 1, 0, [[9, 3, 1]]]\n["b", 9, 2, 0, [[9, 4, 1]]]\n["c"'
    )
    measured: set[str] = set()
    connections = load_connections(None, "localhost:1")
    lags = Lags(tmp_path, connections, lambda: [("of-files", spec, newest)], measured.add)
    lags.start()
    try:
        eventually(lambda: measured)
        assert lags.compute_lag("of-files", spec, newest) == Lag(7, {"/in/0": 7})
        read = log.read_bytes().removesuffix(b'["c"')  # nobody reads it again
        log.write_bytes(b"?" * len(read) + b'["c", 9, 3, 0, [[9, 2, 1]]]\n')
        eventually(lambda: lags.compute_lag("of-files", spec, newest) == Lag(9, {"/in/0": 9}))
    finally:
        lags.close()


def test_a_job_of_two_clusters_has_the_lag_of_both_or_none(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    """Two names of one cluster are two connections, and a silent one makes the lag unknown."""
    create_topic(broker.address, topic, 1)
    create_topic(broker.address, f"{topic}-b", 1)
    produce(broker.address, topic, [(0, insert(row("a", 1)))])
    produce(broker.address, f"{topic}-b", [(0, insert(row("a", 1)))] * 2)
    file = tmp_path / "connections.yaml"
    file.write_text(f"east: {{bootstrap: '{broker.address}'}}\nnone: {{bootstrap: '127.0.0.1:9'}}")
    jobs = []
    for east in ("none", "east"):
        columns = {"k": "STRING"}
        sources = {
            "a": {"topic": topic, "columns": columns},
            "b": {"topic": f"{topic}-b", "connection": east, "columns": columns},
        }
        query = "SELECT a.k, COUNT(*) AS n FROM a JOIN b ON a.k = b.k GROUP BY a.k"
        spec = load_spec({"name": east, "sources": sources, "query": query})
        offsets = {topic: {"0": 0}, f"{topic}-b": {"0": 0}, "of-before": {"0": 0}}
        jobs.append((east, spec, epoch_row(1, offsets=offsets)))
    measured: set[str] = set()
    lags = Lags(tmp_path, load_connections(file, broker.address), lambda: jobs, measured.add)
    lags.start()
    try:
        eventually(lambda: measured)
        assert measured == {"east"}
        assert lags.compute_lag(*jobs[0]) is None
        found = lags.compute_lag(*jobs[1])
        assert found == Lag(3, {f"{topic}/0": 1, f"{topic}-b/0": 2}, {"a": 1, "b": 2})
    finally:
        lags.close()
