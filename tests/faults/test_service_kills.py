"""The service and its job are killed in turns, ten times; followers go on where they were.

shop ──► topic ──► job (killed) ──► table ──► service (killed) ──► two followers, by their ids
"""

from __future__ import annotations

import os
import signal
import threading
import uuid
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import retally
from jobs.edge.process.broker import Broker
from retally import Change, Progress
from service.supervision import job_process
from tests.support.command.shop import Shop, ordered, spec_text
from tests.support.service.served import Served, end_jobs, eventually

pytestmark = [pytest.mark.faults, pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(1_800)]

KILLS = 10
SECONDS = 240.0
NAME = "pear"


class Follower:
    """Whoever follows from the beginning, in a thread of its own, over whatever happens."""

    def __init__(self, address: str, key: str | None) -> None:
        self.places: list[tuple[int, int]] = []
        self.results: dict[Any, dict[str, Any]] = {}
        self.epoch = 0
        self.problem: BaseException | None = None
        self._key = key
        self._client = retally.connect(address, seconds=20)
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            for each in self._client.follow("items", 0, key=self._key, patience=SECONDS):
                if isinstance(each, Progress):
                    self.epoch = each.epoch
                elif isinstance(each, Change):
                    self._take(each)
        except BaseException as problem:
            self.problem = problem

    def _take(self, change: Change) -> None:
        self.places.append((change.epoch, change.seq))
        name = change.row["name"]
        if change.op in ("-D", "-U"):
            assert self.results.pop(name) == change.row
        else:
            assert name not in self.results
            self.results[name] = change.row


def _arrived(follower: Follower, newest: int) -> bool:
    return follower.epoch >= newest or follower.problem is not None


def test_followers_lose_and_repeat_nothing_over_ten_kills(broker: Broker, tmp_path: Path) -> None:
    shop = Shop(broker.address, f"shop-{uuid.uuid4().hex[:8]}", seed=5)
    served = Served.start(tmp_path, brokers=broker.address)
    port = str(urlsplit(served.address).port)
    lock = tmp_path / "jobs" / "items" / "lock"
    try:
        client = retally.connect(served.address, seconds=20)
        client.put(spec_text("items", shop.topic, f"items-{uuid.uuid4().hex[:8]}"))
        shop.feed(50)
        client.start("items")
        eventually(lambda: client.job("items").epoch, SECONDS)
        followers = [Follower(served.address, None), Follower(served.address, NAME)]
        for turn in range(KILLS):
            shop.feed(60)
            if turn % 2:
                pid = eventually(lambda: job_process.find_writer(lock), SECONDS)
                os.killpg(pid, signal.SIGKILL)
            else:
                served.kill()
                served = Served.start(tmp_path, "--port", port, brokers=broker.address)
            shop.feed(60)
            eventually(lambda: ordered(list(client.results("items"))) == shop.truth(), SECONDS)
        newest = client.job("items").epoch
        assert newest is not None
        for follower in followers:
            eventually(partial(_arrived, follower, newest), SECONDS)
            assert follower.problem is None
            assert follower.places == sorted(set(follower.places))
        everything, of_one = followers
        assert ordered(list(everything.results.values())) == shop.truth()
        expected = [row for row in shop.truth() if row["name"] == NAME]
        assert list(of_one.results.values()) == expected
        client.stop("items")
        client.until("items", "STOPPED", seconds=SECONDS)
    finally:
        served.stop()
        end_jobs(tmp_path)
        shop.close()
