"""Jobs with several views, whose tables are written without Spark."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import httpx
import msgspec

from jobs.core.fold.program import Program
from jobs.core.job.views import plans_of
from jobs.core.values.change import RejectCode
from jobs.edge.process.job_directory import JobDirectory
from jobs.edge.table.delta_epochs import EpochTable
from jobs.edge.table.epoch_files import Reject, TableLayout
from jobs.edge.table.file_writer import by_part, file_name, write_file
from jobs.reading.parts import QUARANTINE
from schemas.directory.quarantine import identity_of
from schemas.spec.file import load_spec
from tests.support.console.shop import TOPIC, Shop, put
from tests.support.service.served import Served, eventually

VIEWED = "viewed"
LEAST = "SELECT name, MIN(v) AS least FROM t GROUP BY name"
MOST = "SELECT name, MAX(v) AS most FROM t GROUP BY name HAVING MAX(v) > 1"
TIMES = "SELECT name, COUNT(*) AS times FROM t GROUP BY name"  # it reads only one column


def put_views(
    client: httpx.Client, views: Mapping[str, str], *, job: str = VIEWED, alone: bool = False
) -> None:
    """Put the job's spec with these views, or with them only, to be approved."""
    spec = client.get(f"/v1/jobs/{job}").json()["spec"]
    spec["views"] = {
        name: {"query": query, "state": {"buckets": 4}} for name, query in views.items()
    }
    if alone:
        for key in ("query", "state", "emit", "sink"):
            spec.pop(key, None)
    answer = client.put(f"/v1/jobs/{job}", json=spec, params={"replace": True})
    assert answer.status_code == 200, answer.text


def approve(client: httpx.Client, job: str = VIEWED) -> None:
    """Approve the pending spec, and wait until the job has its views."""
    place = client.post(f"/v1/jobs/{job}/approve").headers["location"]
    ended = ("DONE", "FAILED")
    done: dict[str, Any] = eventually(
        lambda: (seen := client.get(place).json())["state"] in ended and seen, 60
    )
    assert done["state"] == "DONE", done


def put_viewed(served: Served) -> None:
    """Create the job with its query and two views."""
    _put(served, VIEWED, {"least": LEAST, "most": MOST}, alone=False)


def put_only_views(served: Served, job: str) -> None:
    """Create a job with two views and no query of its own."""
    _put(served, job, {"least": LEAST, "times": TIMES}, alone=True)


def _put(served: Served, job: str, views: Mapping[str, str], *, alone: bool) -> None:
    table = Shop(served.data, job)
    table.write({"bolt": (7, 9), "nut": (1,)}, {"bolt": (7,), "nut": (1, 4)})
    put(served, table)
    with served.client() as client:
        put_views(client, views, job=job, alone=alone)
        approve(client, job)


def refuse(served: Served, job: str, messages: Mapping[str, bytes]) -> dict[str, str]:
    """Commit an epoch that quarantines a message of each view; "" is that of all views.

    Return the ids by view, once the service has read the epoch.
    """
    place = JobDirectory(served.data, job)
    plan = next(iter(plans_of(load_spec(place.spec)).values()))
    table = EpochTable.open(place.table, TableLayout(Program(plan)))
    newest = table.newest()
    assert newest is not None
    number, uuid = newest.epoch + 1, uuid4().hex
    files, ids = [], {}
    for at, (view, raw) in enumerate(messages.items()):
        code = RejectCode.EXPRESSION if view else RejectCode.MESSAGE
        reason = f"view {view}: no number" if view else "no number"
        reject = Reject(TOPIC, 0, 10 * number + at, None, reason, "$", raw, len(raw), code)
        rows = table.layout.quarantine_table(number, [reject])
        root = place.at_view(view).table
        added = write_file(root, file_name(QUARANTINE, number, uuid, "w"), rows)
        files.append(added.of_view(view))
        ids[view] = identity_of((number, TOPIC, 0, reject.offset))
    shares = {
        view: msgspec.structs.replace(share, counters={"groups": share.counters["groups"]})
        for view, share in newest.shares.items()
    }
    row = msgspec.structs.replace(
        newest,
        epoch=number,
        uuid=uuid,
        kind="data",
        committed_at=int(time.time() * 1e6),
        offsets={TOPIC: {**newest.offsets[TOPIC], "0": 10 * number + len(messages)}},
        counters={"views": msgspec.to_builtins(shares)},
        files=by_part(files),
    )
    table.commit_epoch(row, files)
    eventually(lambda: served.job(job)["epoch"] == number)
    return ids
