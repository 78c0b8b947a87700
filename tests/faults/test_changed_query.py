"""A running job's topic is read again under another query, and the service dies in between, twice.

job runs ──► read again beside it ─ kill ─► the job stands still ─ kill ─► taken over ──► job runs
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

import retally
from jobs.edge.process.broker import Broker
from retally import Change, Client, Columns, Operation, Progress, Refused
from tests.support.command.shop import QUERY, Shop, ordered, spec_text
from tests.support.service.served import Served, end_jobs, eventually

pytestmark = [pytest.mark.faults, pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(1_200)]

SECONDS = 300.0
CHANGED = QUERY.replace("GROUP BY", "WHERE cnt > 10 GROUP BY")


def truth(shop: Shop) -> list[dict[str, Any]]:
    """What the changed query says over the rows that live now."""
    groups: dict[str | None, list[int]] = {}
    for name, cnt in shop.rows.values():
        if cnt is not None and cnt > 10:
            groups.setdefault(name, []).append(cnt)
    return ordered(
        [
            {"name": name, "sum_cnt": sum(cnts), "top": max(cnts), "n": len(cnts)}
            for name, cnts in groups.items()
        ]
    )


def rows(client: Client) -> list[dict[str, Any]]:
    try:
        return ordered(list(client.results("items")))
    except Refused:
        return []


def folded(client: Client) -> tuple[list[dict[str, Any]], list[int]]:
    """The changes from the beginning, applied; the epochs in which columns were told."""
    newest = client.job("items").epoch or 0
    found: dict[Any, dict[str, Any]] = {}
    told: list[int] = []
    for each in client.follow("items", 0):
        if isinstance(each, Columns):
            told.append(each.epoch)
        elif isinstance(each, Change):
            if each.op in ("+I", "+U"):
                found[each.row["name"]] = each.row
            else:
                assert found.pop(each.row["name"]) == each.row
        elif isinstance(each, Progress) and each.epoch >= newest:
            break
    return ordered(list(found.values())), told


def test_a_topic_is_read_again_beside_its_job_over_kills_of_the_service(
    broker: Broker, tmp_path: Path
) -> None:
    shop = Shop(broker.address, f"shop-{uuid.uuid4().hex[:8]}", seed=5)
    served = Served.start(tmp_path, brokers=broker.address)
    client = retally.connect(served.address)
    try:
        client.put(spec_text("items", shop.topic, f"items-{uuid.uuid4().hex[:8]}"))
        shop.feed(200)
        client.start("items")
        eventually(lambda: rows(client) == shop.truth(), SECONDS)

        spec = dict(client.job("items").spec or {}) | {"query": CHANGED}
        pending = client.put(name="items", spec=spec, replace=True)
        assert pending.evolution is not None
        assert (pending.evolution.continues, pending.evolution.replays) == (False, True)
        with pytest.raises(Refused) as choose:
            client.approve("items")
        assert choose.value.document["choices"] == ["replay", "drop"]
        operation = client.approve("items", "replay")
        assert isinstance(operation, Operation)
        home = tmp_path / "jobs" / "items"
        eventually((home / "next" / "jobs" / "items" / "epochs").exists, SECONDS)
        assert client.job("items").actual == "RUNNING"  # read again beside it

        served.kill()
        shop.feed(100)
        served = Served.start(tmp_path, brokers=broker.address)
        client = retally.connect(served.address)
        eventually(lambda: client.job("items").actual in ("STOPPING", "STOPPED"), SECONDS)
        shop.feed(50)

        served.kill()
        served = Served.start(tmp_path, brokers=broker.address)
        client = retally.connect(served.address)
        done = client.wait_until_ended(client.operation(operation.id), 2 * SECONDS)
        assert (done.state, done.reason) == ("DONE", None)
        assert (client.job("items").desired, client.job("items").pending) == ("RUNNING", None)
        shop.feed(50)
        eventually(lambda: rows(client) == truth(shop), SECONDS)
        results, told = folded(client)
        assert results == truth(shop)
        assert done.result is not None and told == [done.result["epoch"]]
        assert not (home / "next").exists() or not list((home / "next").iterdir())
        report = client.wait_until_ended(client.audit("items"), SECONDS)
        assert (report.state, report.reason) == ("DONE", None)
        assert report.result is not None and report.result["verdict"] == "equal", report.result
        client.stop("items")
        client.until("items", "STOPPED", seconds=SECONDS)
    finally:
        served.stop()
        end_jobs(tmp_path)
        shop.close()
