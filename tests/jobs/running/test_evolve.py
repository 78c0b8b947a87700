"""A running job's query changes: it goes on with its state, or reads its topic again; the topic of
its changes stays right for whoever folds it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from jobs.edge.process.broker import Broker
from tests.support.jobs.running_job import RunningJob, consumed, create_topic, produce

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow]


def spec_of(topic: str, query: str) -> dict[str, Any]:
    return {
        "name": "items",
        "source": {"topic": topic},
        "columns": {"id": "BIGINT", "name": "STRING", "cnt": "INT"},
        "query": query,
        "sink": {"topic": f"{topic}-changes", "partitions": 2},
        "state": {"buckets": 3},
    }


def message(kind: str, name: str, cnt: int, old: int | None = None) -> bytes:
    before = "" if old is None else f'"old":[{{"cnt":"{old}"}}],'
    return (
        f'{{"data":[{{"id":"1","name":"{name}","cnt":"{cnt}"}}],{before}'
        f'"type":"{kind}","isDdl":false}}'
    ).encode()


class Evolving(RunningJob):
    def folded(self) -> list[dict[str, Any]]:
        """What a consumer of the topic has."""
        rows: dict[str, dict[str, Any]] = {}
        for record in consumed(self.brokers, self.spec["sink"]["topic"]):
            change = record["value"]
            if change["op"] in ("+I", "+U"):
                rows[record["key"]] = change["row"]
            elif change["op"] == "-D":
                del rows[record["key"]]
        return sorted(rows.values(), key=lambda row: str(row.get("name")))

    def mirrored(self) -> list[dict[str, Any]]:
        """The plain table beside the epochs, as any reader of Delta has it."""
        table = DeltaTable(str(self.data / "jobs" / "items" / "results")).to_pyarrow_table()
        return sorted(table.to_pylist(), key=lambda row: row["name"])

    def ask_rows(self) -> list[dict[str, Any]]:
        return sorted(self.ask("results", "items"), key=lambda row: row["name"])


def test_a_job_goes_on_under_a_changed_query(broker: Broker, topic: str, tmp_path: Path) -> None:
    create_topic(broker.address, topic, 2)
    first = "SELECT name, SUM(cnt) AS total, MAX(cnt) AS top FROM t GROUP BY name"
    job = Evolving(spec_of(topic, first) | {"mirror": "1m"}, tmp_path, broker.address)
    changes = [("a", 3), ("a", 8), ("b", 5), ("c", 1)]
    produce(broker.address, topic, [(0, message("INSERT", *each)) for each in changes])
    job.must_run()
    assert job.mirrored() == job.ask_rows()

    # What the multiset of MAX knows is answered at once, from the state.
    job.spec["query"] = (
        "SELECT name, MAX(cnt) AS top, MIN(cnt) AS low, COUNT(DISTINCT cnt) AS kinds FROM t "
        "GROUP BY name HAVING MAX(cnt) > 1"
    )
    code, said = job.run()
    assert code == 1
    assert "retally evolve" in said
    assert "new: low, kinds\nremoved: total" in job.evolve("--check")
    assert "epoch 2 under the new query" in job.evolve()
    output = [
        {"name": "a", "top": 8, "low": 3, "kinds": 2},
        {"name": "b", "top": 5, "low": 5, "kinds": 1},
    ]
    assert job.ask_rows() == output
    passed_over = message("INSERT", "z", 77)
    later = [message("DELETE", "a", 8), message("INSERT", "c", 4), message("UPDATE", "b", 2, 5)]
    produce(broker.address, topic, [(0, each) for each in (passed_over, *later)])
    place = f"{topic}/0={len(changes) + 1}"
    (done,) = job.ask("offsets", "items", "--set", place, "--brokers", broker.address)
    assert (done["epoch"], done["moved"], done["changed"]) == (3, 3, True)
    job.must_run()
    output = [
        {"name": "a", "top": 3, "low": 3, "kinds": 1},
        {"name": "b", "top": 2, "low": 2, "kinds": 1},
        {"name": "c", "top": 4, "low": 1, "kinds": 2},
    ]
    assert job.ask_rows() == output
    assert job.folded() == output
    assert job.mirrored() == output  # with the columns of now
    kinds = ["start", "data", "evolve", "offsets", "data"]
    assert [row.kind for row in job.epochs()] == kinds
    assert [row.moved for row in job.epochs()] == [None, None, None, 3, 3]
    assert (tmp_path / "data" / "cache").exists()

    # Groups of other columns need the rows, and another topic for what is told of them.
    job.spec["query"] = "SELECT cnt, COUNT(*) AS n FROM t WHERE cnt > 1 GROUP BY cnt"
    assert "give sink.topic another name" in job.evolve(code=1)


@pytest.mark.faults
def test_where_the_state_does_not_do_the_topic_is_read_again(
    broker: Broker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RETALLY_CACHE", str(tmp_path / "cache"))
    create_topic(broker.address, topic, 2)
    first = "SELECT name, SUM(cnt) AS total FROM t GROUP BY name"
    job = Evolving(spec_of(topic, first), tmp_path, broker.address)
    changes = [("a", 3), ("a", 8), ("b", 5)]
    produce(broker.address, topic, [(0, message("INSERT", *each)) for each in changes])
    job.must_run()
    job.spec["query"] = (
        "SELECT name, SUM(cnt) AS total, MAX(cnt) AS top FROM t WHERE cnt > 3 GROUP BY name"
    )
    said = job.evolve(code=1)
    assert "WHERE changed" in said
    assert "--replay" in said
    job.evolve("--replay", "--brokers", broker.address)
    output = [{"name": "a", "total": 8, "top": 8}, {"name": "b", "total": 5, "top": 5}]
    assert job.ask_rows() == output
    produce(broker.address, topic, [(0, message("INSERT", "c", 9))])
    job.must_run()
    output.append({"name": "c", "total": 9, "top": 9})
    assert job.ask_rows() == output
    assert job.folded() == output
    (report,) = job.ask("audit", "items", "--brokers", broker.address)
    assert report["verdict"] == "equal", report
    assert not (job.data / "jobs" / "items" / "next").exists()
    assert len(list((tmp_path / "cache" / "items").iterdir())) == 1

    # Groups of other columns: nothing leads to them from the old ones, so history begins there.
    job.spec["query"] = "SELECT cnt, COUNT(*) AS n FROM t WHERE cnt > 3 GROUP BY cnt"
    job.spec["sink"]["topic"] += "-2"
    assert "GROUP BY changed" in job.evolve(code=1)
    job.ask("offsets", "items", "--set", f"{topic}/0=0", "--brokers", broker.address)
    assert job.epochs()[-1].moved is not None
    job.evolve("--replay", "--brokers", broker.address)
    assert job.epochs()[-1].moved is None  # the topic was read again
    produce(broker.address, topic, [(0, message("INSERT", "d", 9))])
    job.must_run()
    output = [{"cnt": 5, "n": 1}, {"cnt": 8, "n": 1}, {"cnt": 9, "n": 2}]
    assert sorted(job.ask("results", "items"), key=lambda row: row["cnt"]) == output
    assert sorted(job.folded(), key=lambda row: row["cnt"]) == output
