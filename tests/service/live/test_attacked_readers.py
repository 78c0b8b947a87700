"""Readers page, ask again with ETags and follow, while tables are dropped, rewound and merged.

In each epoch all groups have one number, which no other epoch of any table has, but for the epochs
that a rewind restores. So rows of two epochs, or of two tables, show in any answer.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

import retally
from jobs.edge.table.compaction import BASE_TIER
from jobs.reading.parts import ACCUMULATORS, CHANGELOG
from jobs.reading.version import TableVersion
from retally import Change, Columns, Progress, Restarted
from schemas.types.sql_types import INT, STRING
from tests.support.service.served import Served
from tests.support.service.tables import QUERY, WatchedTable
from tests.support.tables.written_table import Live, WrittenTable

RESULTS = "/v1/jobs/items/results"
SECONDS = 4.0
ATTACKS = {"drop", "rewind", "merge", "forget"}
REFUSALS = {"cursor-invalid", "history-gone", "job-has-no-table", "job-not-ready"}


class Attacked:
    """The table of a job, and by its tag and epoch the number of its groups."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.watched = WatchedTable(served)
        self.chance = random.Random(7)
        self.numbers: dict[tuple[str, int], int | None] = {}
        self.given = 0
        self.ended = threading.Event()
        self.done: Counter[str] = Counter()
        self.read_tag()

    @property
    def table(self) -> WrittenTable:
        return self.watched.table

    def read_tag(self) -> None:
        self.tag = TableVersion(self.table.place.own_table).tag
        self.numbers[self.tag, 0] = None

    def write(self, live: Live, kind: str = "data", **counters: int) -> None:
        epoch = len(self.table.history)
        self.numbers[self.tag, epoch] = next((values[0] for values in live.values()), None)
        self.table.kind = kind
        self.table.epoch(live, **counters)

    def commit(self) -> None:
        self.given += 1
        names = self.chance.sample("abcdefgh", 6)
        self.write({(name,): (self.given,) for name in names})

    def rewind(self) -> None:
        to = self.chance.randrange(len(self.table.history))
        self.write(self.table.history[to], kind="rewind", rewound_to=to)

    def merge(self) -> None:
        self.table.merge(self.chance.choice([ACCUMULATORS, CHANGELOG]), BASE_TIER)

    def forget(self) -> None:
        self.table.forget(len(self.table.history) - 3)

    def drop(self) -> None:
        """Put another table in place, with more versions than the one that was there."""
        versions = self.table.table.version
        root = self.table.place.own_table
        root.rename(root.with_name(f"dropped-{self.tag}"))
        self.watched.table = WrittenTable(self.served.data, QUERY, {"name": STRING, "v": INT})
        self.read_tag()
        for _ in range(min(versions, 6)):
            self.commit()

    def attack(self) -> None:
        usual = [self.commit] * 12
        acts: list[Callable[[], None]] = [*usual, self.rewind, self.rewind, self.merge, self.forget]
        until = time.monotonic() + SECONDS
        while time.monotonic() < until or not set(self.done) >= ATTACKS:
            act = self.chance.choice([*acts, self.drop])
            act()
            self.done[act.__name__] += 1
            time.sleep(0.02)
        self.ended.set()
        self.commit()  # the follower may have read the last epoch before the end was set

    def number_of(self, tag: str) -> int | None:
        """Return the number of the table and the epoch that an ETag names."""
        epoch, _, table = tag.removeprefix('W/"').removesuffix('"').partition("-")
        return self.numbers[table, int(epoch)]

    def page(self, client: httpx.Client) -> None:
        cursor, seen, tags = None, set[int | None](), set[str]()
        while True:
            parameters = {"limit": "2"} | ({"cursor": cursor} if cursor else {})
            answer = client.get(RESULTS, params=parameters)
            if answer.status_code != 200:
                assert answer.json()["code"] in REFUSALS, answer.text
                self.done["refused"] += 1
                return
            seen |= {row["total"] for row in answer.json()["rows"]}
            tags.add(answer.headers["etag"])
            cursor = answer.json()["next_cursor"]
            if cursor is None:
                break
        (tag,) = tags
        assert seen <= {self.number_of(tag)}
        self.done["listed"] += 1

    def ask_again(self, client: httpx.Client, kept: dict[str, str]) -> None:
        answer = client.get(f"{RESULTS}/a", headers=kept)
        if answer.status_code == 200:
            assert answer.json()["row"]["total"] == self.number_of(answer.headers["etag"])
            kept["If-None-Match"] = answer.headers["etag"]
        else:
            assert answer.status_code == 304 or answer.json()["code"] in {
                "group-unknown",
                *REFUSALS,
            }, answer.text
        self.done[f"asked {answer.status_code}"] += 1

    def follow(self, client: retally.Client) -> None:
        rows: dict[str, int] = {}
        last: tuple[str, int] | None = None
        for event in client.follow("items", snapshot=True, resnapshot=True):
            match event:
                case Restarted():
                    rows, last = {}, None
                    self.done["restarted"] += 1
                case Change(op="-D"):
                    assert rows.pop(event.row["name"]) == event.row["total"]
                case Change(op="-U"):
                    assert rows[event.row["name"]] == event.row["total"]
                case Change():
                    rows[event.row["name"]] = event.row["total"]
                case Progress():
                    table = event.position.split(":")[2]
                    assert last is None or last == (table, event.epoch - 1), "a silent gap"
                    last = (table, event.epoch)
                    assert set(rows.values()) <= {self.numbers[last]}
                    self.done["followed"] += 1
                    if self.ended.is_set() and event.epoch == len(self.table.history) - 1:
                        return
                case Columns():
                    raise AssertionError("the query is one")


@pytest.mark.slow
def test_no_answer_has_two_tables_and_no_stream_a_silent_gap(tmp_path: Path) -> None:
    with Served.start(tmp_path) as served:
        attacked = Attacked(served)
        attacked.commit()
        attacked.watched.seen()
        failures: list[BaseException] = []

        def run(work: Callable[[], None]) -> threading.Thread:
            def kept() -> None:
                try:
                    work()
                except BaseException as failure:
                    failures.append(failure)

            thread = threading.Thread(target=kept)
            thread.start()
            return thread

        def repeat(work: Callable[[httpx.Client], None]) -> None:
            with served.client() as client:
                while not attacked.ended.is_set() and not failures:
                    work(client)

        kept: dict[str, str] = {}
        threads = [
            run(lambda: attacked.follow(retally.connect(served.address))),
            run(lambda: repeat(attacked.page)),
            run(lambda: repeat(lambda client: attacked.ask_again(client, kept))),
        ]
        attacked.attack()
        for thread in threads:
            thread.join(60)
            assert failures or not thread.is_alive()
        assert not failures, failures
        assert {"listed", "followed", "asked 200", "restarted"} <= set(attacked.done)
