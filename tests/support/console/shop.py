"""A job for browser tests: a table written without Spark, with current times and real counters."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec

from jobs.edge.table.epoch_files import Reject
from jobs.edge.table.file_writer import AddedFile, by_part, file_name, write_file
from jobs.reading.parts import QUARANTINE
from schemas import limits
from schemas.spec.file import load_spec
from schemas.types.moments import now_ms
from schemas.types.sql_types import INT, STRING
from service.supervision.register import Actual, Desired, JobRecord, Register
from tests.support.console.operations import ask_for_audits
from tests.support.epoch_rows import epoch_row
from tests.support.service.served import SPEC, Served, eventually
from tests.support.tables.written_table import WrittenTable

TOPIC = "t"
QUERY = "SELECT name, SUM(v) AS total, MAX(v) AS top FROM t GROUP BY name"
COLUMNS: Mapping[str, object] = {"name": STRING, "v": INT}
EPOCH_SECONDS = 2  # between two of the table's first epochs
Lives = Mapping[Any, tuple[int, ...]]


class Shop(WrittenTable):
    """A job's table whose epochs were committed in the last minutes, one every two seconds."""

    def __init__(self, data: Path, name: str = "items", *, epochs_until_now: int = 0) -> None:
        self._began = time.time() - EPOCH_SECONDS * epochs_until_now
        super().__init__(data, QUERY, COLUMNS, name)

    def write(self, *lives: Lives) -> int:
        """Commit an epoch for each; return the number of the last one."""
        for live in lives:
            self.epoch({(name,): values for name, values in live.items()})
        return len(self.history) - 1

    def refuse(self, *messages: tuple[bytes | None, str]) -> int:
        """Commit an epoch that quarantines these messages, each with its reason."""
        number = len(self.history)
        rejects = [
            Reject(TOPIC, 0, 10 * number + at, 1_000_000, why, "$.data[0].v", raw, len(raw or b""))
            for at, (raw, why) in enumerate(messages)
        ]
        rows = self.layout.quarantine_table(number, rejects)
        name = file_name(QUARANTINE, number, uuid4().hex, "w")
        self.history.append(dict(self.history[-1]))
        self._commit("data", [write_file(self.place.table, name, rows)], 0)
        return number

    def _commit(
        self, kind: str, files: list[AddedFile], changelog_rows: int, **counters: Any
    ) -> None:
        number = len(self.history) - 1
        at = min(time.time(), self._began + EPOCH_SECONDS * number)
        rows = sum(len(values) for values in self.history[-1].values())
        self.table.commit_epoch(
            epoch_row(
                number,
                self.plan,
                kind=kind,
                committed_at=int(at * 1e6),
                offsets={TOPIC: {"0": 10 * number, "1": 7 * number}},
                watermarks=self._time(int(at * 1_000)) if number else {},
                counters={
                    "read": 17,
                    "rows": rows,
                    "changelog_rows": changelog_rows,
                    "groups": len(self.history[-1]),
                    "compute_seconds": 0.2 + number % 5 / 20,
                    "decode_seconds": 0.06 + number % 3 / 50,
                    "fold_seconds": 0.05,
                    "phases_ms": {"plan": 30.0, "tasks": 150.0, "check": 5.0, "commit": 25.0},
                    "event_lag_ms": 400 + 30 * (number % 7),
                    "quarantined": int(number % 9 == 4),
                    **counters,
                },
                files=by_part(files),
            ),
            files,
        )

    def _time(self, now: int) -> dict[str, Any]:
        """Return the time of two partitions: an active one and an idle one."""
        going = {"watermark": now - 5_000, "heard_ms": 200}
        idle = {"watermark": now - 60_000, "heard_ms": 55_000, "idle": True}
        return {
            "now": now,
            "combined": now - 5_000,
            "status": "active",
            "topics": {TOPIC: {"partitions": {"0": going, "1": idle}}},
            "event_time_max": {f"{TOPIC}/0": now - 4_000},
            "held_by": [f"{TOPIC} partition 0, silent for 0.2 s, idle in 29 s"],
            "holding": [{"topic": TOPIC, "partition": 0}],
        }


def put(served: Served, table: Shop) -> None:
    """Create a job for the table, and wait until the service has read all of it."""
    spec = load_spec(table.place.spec)
    newest, name = len(table.history) - 1, spec.name
    with served.client() as client:
        assert client.put(f"/v1/jobs/{name}", json=spec.document()).status_code == 201
    eventually(lambda: served.job(name)["epoch"] == newest)


BROKEN = "broken"  # a job that failed before its service started
BROKEN_BY = "topic <i>shop</i> was made again: its id is another"


# A later try than the longest pause is taken for one whose clock went back: it starts at once.
LATER_MS = int(limits.RESTART_PAUSE_SECONDS_MAX * 1_000) - 1_000


def failed(data: Path, name: str, **fields: object) -> None:
    """Add a failed job to the register, before the service starts."""
    spec = load_spec(f"name: {name}\n{SPEC}")
    register = Register(data / "service" / "register.sqlite")
    register.add_job(
        JobRecord(
            name=name,
            revision=1,
            spec=msgspec.json.encode(spec.document()).decode(),
            desired=Desired.RUNNING,
            actual=Actual.FAILED,
            since=now_ms(),
            **fields,  # type: ignore[arg-type]
        )
    )
    register.close()


STORY_EPOCHS = 60

# What its last epoch did not take, as text, as bytes, too long for a list, and as nothing at all.
REFUSED: list[tuple[bytes | None, str]] = [
    (
        b'{"type": "INSERT", "data": [{"name": "<b>&amp;", "v": "x"}]}',
        "v: '<b>&amp;x' is not a valid INT",
    ),
    (b"\xff\xfe\x00bolt", "not JSON: invalid UTF-8"),
    (b'{"data": "' + b"y" * 3_000 + b'"}', "data is no array"),
    (None, "the message is empty"),
]


@contextmanager
def serve_shop(data: Path) -> Iterator[tuple[Served, Shop]]:
    """Serve the table of the job `items`, with a story of two minutes, and jobs that failed."""
    table = Shop(data, epochs_until_now=STORY_EPOCHS)
    for epoch in range(1, STORY_EPOCHS):
        bolts: tuple[int, ...] = (5, 5, 6, 7)
        if epoch < STORY_EPOCHS - 1:  # at last its MAX goes down
            bolts = (*bolts, 7 + epoch)
        table.write({"bolt": bolts, "nut": (epoch,), None: (1, epoch % 3), "<b>&amp;": (2,)})
    table.refuse(*REFUSED)
    ask_for_audits(data)
    with Served.start(data) as served:
        put(served, table)
        yield served, table
