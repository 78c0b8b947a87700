"""A state that grows: the same epochs over 10 thousand to 10 million groups.

Each state is filled with one row a group, and what that left to be merged is merged; then a
backlog of random changes is cut into epochs of 5,000. The time from commit to commit, the memory
of the job's processes and what the table had written to it are taken from those epochs alone.
"""

from __future__ import annotations

import json
import shutil
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from bench.frame import MIB, Bench, Figure
from bench.generator import in_motion, one_row_each
from bench.outcome import BenchFailed
from bench.process_tree import sampled_footprint
from bench.product import RetallyJob
from bench.topic import fill
from bench.workloads.epoch import EPOCH_CHANGES, epoch_seconds, wait_until_taken
from jobs.edge.compaction import due_merge
from jobs.edge.delta_epochs import live_files, opened

TITLE = "growing state"
SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
EPOCHS = 80
TIMES_MAX = 1.3  # the epoch of the smallest state
MEMORY_MIB_MAX = 5 * 1024
GROUP_BYTES_MAX = 50
WRITTEN_TIMES_MAX = 4.0
KEPT_STREAM_GROUPS_MAX = 1_000_000  # a larger stream takes gigabytes, and is made anew
SETTLE_SECONDS_MAX = 600
STATE_PARTS = ("accumulators", "multisets", "timers")


@dataclass(frozen=True, slots=True)
class Grown:
    """What epochs over a state of one size came to."""

    epoch_seconds: float
    memory_bytes: int
    written_times: float  # bytes written to the table, of those of changed state


def run(bench: Bench) -> None:
    if not bench.options.retally:
        return
    sizes = [groups for groups in SIZES if groups <= bench.options.groups]
    grown = {}
    for groups in sizes:
        found = grown[groups] = _grown(bench, groups)
        what = f"{groups:,} groups"
        written = found.written_times
        bench.add(Figure(TITLE, "retally", f"{what}: epoch of 5,000", found.epoch_seconds, "s"))
        bench.add(Figure(TITLE, "retally", f"{what}: memory", found.memory_bytes / MIB, "MiB"))
        bench.add(
            Figure(TITLE, "retally", f"{what}: written, of changed state", written, "times",
                   f"<= {WRITTEN_TIMES_MAX:.0f}", written <= WRITTEN_TIMES_MAX)
        )  # fmt: skip
    _compare(bench, grown, sizes[0], sizes[-1])


def _compare(bench: Bench, grown: dict[int, Grown], small: int, large: int) -> None:
    times = grown[large].epoch_seconds / grown[small].epoch_seconds
    memory = grown[large].memory_bytes / MIB
    spread = grown[large].memory_bytes - grown[small].memory_bytes
    each = spread / max(1, large - small)
    name = f"{large:,} groups"
    bench.add(
        Figure(TITLE, "retally", f"{name}: epoch, of that of {small:,}", times, "times",
               f"<= {TIMES_MAX}", times <= TIMES_MAX)
    )  # fmt: skip
    bench.add(
        Figure(TITLE, "retally", f"{name}: memory at most", memory, "MiB",
               f"< {MEMORY_MIB_MAX:,}", memory < MEMORY_MIB_MAX)
    )  # fmt: skip
    bench.add(
        Figure(TITLE, "retally", f"{name}: memory a group more", each, "bytes",
               f"< {GROUP_BYTES_MAX}", each < GROUP_BYTES_MAX)
    )  # fmt: skip


def _grown(bench: Bench, groups: int) -> Grown:
    name = f"groups-{groups}"
    loaded = bench.loaded(one_row_each(groups))
    if groups > KEPT_STREAM_GROUPS_MAX:
        shutil.rmtree(loaded.stream.directory)
    job = RetallyJob(
        name=name, brokers=bench.brokers, topic=loaded.topic, directory=bench.directory / name,
        published_ms=None,
    )  # fmt: skip
    with bench.measuring(f"retally: filling {groups:,} groups"):
        job.catch_up()
    with bench.measuring(f"retally: merging {groups:,} groups"):
        _settle(job)
    before = job.epochs()[-1].epoch
    since = _versions(job.table)[-1]
    loaded.table.shape = in_motion(groups)
    fill(bench.brokers, loaded.topic, enumerate(loaded.table.changes(EPOCHS * EPOCH_CHANGES)))
    job.minibatch = {"size": EPOCH_CHANGES, "latency": "1s", "max_rows": EPOCH_CHANGES}
    with (
        bench.measuring(f"retally: epochs over {groups:,} groups"),
        job.running() as process,
        sampled_footprint(process.pid) as footprint,
    ):
        wait_until_taken(job.taken, loaded)
    seconds = epoch_seconds([epoch for epoch in job.epochs() if epoch.epoch > before])
    written = _written_times(job.table, since)
    bench.check_retally(job, loaded)
    shutil.rmtree(job.directory)
    return Grown(statistics.median(seconds), footprint.memory_bytes_max, written)


def _settle(job: RetallyJob) -> None:
    """Until no merge is due."""
    epoch = job.epochs()[-1].epoch

    def due() -> bool:
        return due_merge(live_files(opened(job.table)), epoch) is not None

    if not due():
        return
    give_up = time.monotonic() + SETTLE_SECONDS_MAX
    with job.running():
        while due():
            if time.monotonic() > give_up:
                raise BenchFailed(f"merges are still due after {SETTLE_SECONDS_MAX} s")
            time.sleep(1)


def _versions(table: Path) -> list[int]:
    return sorted(int(path.stem) for path in (table / "_delta_log").glob("[0-9]*[0-9].json"))


def _written_times(table: Path, since: int) -> float:
    """Bytes of everything that was written after a version, merges and the log with it, over those
    of the state that epochs wrote."""
    written = changed = 0
    for version in _versions(table):
        if version <= since:
            continue
        entry = table / "_delta_log" / f"{version:020d}.json"
        actions = [json.loads(line) for line in entry.read_text().splitlines()]
        (told,) = (action["commitInfo"] for action in actions if "commitInfo" in action)
        of_epoch = told.get("retally", {}).get("what", "").startswith("epoch ")
        written += entry.stat().st_size
        for added in (action["add"] for action in actions if "add" in action):
            written += added["size"]
            if of_epoch and added["partitionValues"]["part"] in STATE_PARTS:
                changed += added["size"]
    for checkpoint in (table / "_delta_log").glob("*.checkpoint*.parquet"):
        if int(checkpoint.name[:20]) > since:
            written += checkpoint.stat().st_size
    return written / changed
