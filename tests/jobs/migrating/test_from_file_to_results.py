"""A file of Flink SQL, five minutes later: the job runs on a real broker, with its connections."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jobs.cli.main import main
from jobs.edge.process.broker import Broker
from tests.support.jobs.running_job import create_topic, produce
from tests.support.topics import committed_records
from tests.support.warm_driver import warm_driver

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow]

SQL = Path(__file__).parents[2] / "vectors" / "flink_sql" / "items.sql"


def canal(kind: str, row: dict[str, Any], **old: Any) -> bytes:
    message = {"database": "shop", "table": "product", "type": kind, "data": [row]}
    return json.dumps({**message, "old": [old] if old else None}).encode()


def test_a_flink_job_runs_here_with_the_files_that_were_written(
    broker: Broker, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sink = f"{topic}-items"
    sql = SQL.read_text().replace("localhost:9092", broker.address)
    sql = sql.replace("'shop.product'", f"'{topic}'").replace("'items-changes'", f"'{sink}'")
    (tmp_path / "job.sql").write_text(sql)
    jobs, data = tmp_path / "jobs", str(tmp_path / "data")
    assert main(["from-flink", str(tmp_path / "job.sql"), "--out", str(jobs)]) == 0

    create_topic(broker.address, topic, 1)
    at = "2026-01-31 12:00:00"
    first = {"id": "1", "name": "bolt", "cnt": "3", "updated_at": at}
    second = {"id": "2", "name": "bolt", "cnt": "9", "updated_at": at}
    messages = [canal("INSERT", first), canal("INSERT", second)]
    messages.append(canal("UPDATE", {**second, "cnt": "5"}, cnt="9"))
    produce(broker.address, topic, [(0, message) for message in messages])

    arguments = ["--data", data, "--connections", str(jobs / "connections.yaml")]
    ran = warm_driver("run", str(jobs / "items.yaml"), *arguments, "--until-caught-up")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    capsys.readouterr()
    assert main(["results", "items", "--data", data, "--json"]) == 0
    row = {"name": "bolt", "total": 8, "top": 5, "n": 2}
    assert json.loads(capsys.readouterr().out) == row
    (*_, last) = committed_records(broker.address, sink)
    assert (json.loads(last.key), json.loads(last.value)) == ({"name": "bolt"}, row)
