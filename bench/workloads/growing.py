"""A growing state: the same epochs over 10 thousand to 10 million groups.

Each state is filled with one row per group, and then merged. Then a backlog of random changes is
processed in epochs of 5,000. Only these epochs are measured: the time between commits, the memory
of the job's processes, and the bytes that they write. The largest state also runs with an empty
page cache, and with a page cache for a quarter of the hot state.
"""

from __future__ import annotations

import shutil
import statistics
import time
from dataclasses import dataclass

from bench.frame import MIB, Bench, Figure, Loaded
from bench.generator import in_motion, one_row_each
from bench.outcome import BenchFailed
from bench.page_cache import Room, forget, room
from bench.process_tree import command_line, descendants, sampled_footprint, written_bytes
from bench.product import Epoch, RetallyJob
from bench.topic import fill
from bench.workloads.epoch import EPOCH_CHANGES, epoch_seconds, gap_seconds, wait_until_processed
from bench.written import newest_version, written_since
from jobs.edge.table.compaction import due_merge
from jobs.reading.files import live_files, open_table

TITLE = "growing state"
SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
EPOCHS = 80
FIRST_EPOCHS = 5  # after a start; after them most of the cache is filled again
ROOM_SHARE = 0.25  # of the hot state, in addition to the processes' own memory
TIMES_MAX = 1.3  # of the epoch of the smallest state
MEMORY_MIB_MAX = 5 * 1024
GROUP_BYTES_MAX = 50
KEPT_STREAM_GROUPS_MAX = 1_000_000  # a larger stream takes gigabytes, and is generated again
SETTLE_SECONDS_MAX = 600


@dataclass(frozen=True, slots=True)
class State:
    """A filled and merged state, and its job."""

    groups: int
    job: RetallyJob
    loaded: Loaded


@dataclass(frozen=True, slots=True)
class Moved:
    """The costs of one run of epochs over a state."""

    epochs: list[Epoch]
    memory_bytes: int
    written_times: float  # bytes written to the table, divided by those of changed state
    cache_bytes: int  # written to the hot state per epoch

    @property
    def epoch_seconds(self) -> float:
        return statistics.median(epoch_seconds(self.epochs))

    @property
    def first_seconds(self) -> float:
        data = [epoch for epoch in self.epochs if epoch.kind == "data"]
        return statistics.fmean(gap_seconds(data[: FIRST_EPOCHS + 1]))


def run(bench: Bench) -> None:
    if not bench.options.retally:
        return
    sizes = [groups for groups in SIZES if groups <= bench.options.groups]
    grown = {}
    for groups in sizes:
        state = _fill(bench, groups)
        grown[groups] = moved = _measure_backlog(bench, state, "epochs")
        _add_figures(bench, groups, moved)
        if groups == sizes[-1]:
            _add_cold_figures(bench, state, moved)
        bench.check_retally(state.job, state.loaded)
        shutil.rmtree(state.job.directory)
    _compare(bench, grown, sizes[0], sizes[-1])


def _add_figures(bench: Bench, groups: int, moved: Moved) -> None:
    def add(what: str, value: float, unit: str) -> None:
        bench.add(Figure(TITLE, "retally", f"{groups:,} groups: {what}", value, unit))

    add("epoch of 5,000", moved.epoch_seconds, "s")
    add("memory", moved.memory_bytes / MIB, "MiB")
    add("hot state, written an epoch", moved.cache_bytes / MIB, "MiB")
    # The workload `writing` has the bound, because here only few merges happen.
    add("written, of changed state", moved.written_times, "times")


def _add_cold_figures(bench: Bench, state: State, warm: Moved) -> None:
    """Add figures of a start with and without cached files, and of epochs in little memory."""

    def add(what: str, value: float) -> None:
        bench.add(Figure(TITLE, "retally", f"{state.groups:,} groups: {what}", value, "s"))

    add(f"first {FIRST_EPOCHS} epochs, mean, files cached", warm.first_seconds)
    forget(state.job.directory)
    cold = _measure_backlog(bench, state, "epochs from a cold cache")
    add(f"first {FIRST_EPOCHS} epochs, mean, none cached", cold.first_seconds)
    forget(state.job.directory)
    hot = sum(path.stat().st_blocks * 512 for path in state.job.cache.rglob("columns"))
    with room(warm.memory_bytes + int(hot * ROOM_SHARE)) as narrow:
        if narrow is None:
            bench.say("no row of a state beyond memory: nothing here lets memory be bounded")
            return
        beyond = _measure_backlog(bench, state, "epochs beyond memory", narrow)
    add(f"epoch of 5,000, a quarter of {hot / MIB:,.0f} MiB cached", beyond.epoch_seconds)


def _compare(bench: Bench, grown: dict[int, Moved], small: int, large: int) -> None:
    times = grown[large].epoch_seconds / grown[small].epoch_seconds
    memory = grown[large].memory_bytes / MIB
    spread = grown[large].memory_bytes - grown[small].memory_bytes
    each = spread / max(1, large - small)
    name = f"{large:,} groups"
    bench.add(
        Figure(
            TITLE,
            "retally",
            f"{name}: epoch, of that of {small:,}",
            times,
            "times",
            f"<= {TIMES_MAX}",
            times <= TIMES_MAX,
        )
    )
    bench.add(
        Figure(
            TITLE,
            "retally",
            f"{name}: memory at most",
            memory,
            "MiB",
            f"< {MEMORY_MIB_MAX:,}",
            memory < MEMORY_MIB_MAX,
        )
    )
    bench.add(
        Figure(
            TITLE,
            "retally",
            f"{name}: memory a group more",
            each,
            "bytes",
            f"< {GROUP_BYTES_MAX}",
            each < GROUP_BYTES_MAX,
        )
    )


def _fill(bench: Bench, groups: int) -> State:
    name = f"groups-{groups}"
    loaded = bench.load(one_row_each(groups))
    if groups > KEPT_STREAM_GROUPS_MAX:
        shutil.rmtree(loaded.stream.directory)
    job = RetallyJob(
        name=name,
        brokers=bench.brokers,
        topic=loaded.topic,
        directory=bench.directory / name,
        published_ms=None,
    )
    with bench.measuring(f"retally: filling {groups:,} groups"):
        job.catch_up()
    with bench.measuring(f"retally: merging {groups:,} groups"):
        _settle(job)
    loaded.table.shape = in_motion(groups)
    job.minibatch = {"size": EPOCH_CHANGES, "latency": "1s", "max_rows": EPOCH_CHANGES}
    return State(groups, job, loaded)


def _measure_backlog(bench: Bench, state: State, what: str, narrow: Room | None = None) -> Moved:
    """Measure a backlog of epochs, optionally with limited memory."""
    job, loaded = state.job, state.loaded
    before = job.epochs()[-1].epoch
    since = newest_version(job.table)
    fill(bench.brokers, loaded.topic, enumerate(loaded.table.changes(EPOCHS * EPOCH_CHANGES)))
    with (
        bench.measuring(f"retally: {what} over {state.groups:,} groups"),
        job.running() as process,
        sampled_footprint(process.pid) as footprint,
    ):
        if narrow is not None:
            narrow.take(process.pid)
        wait_until_processed(job.count_processed, loaded)
        by_workers = _written_by_workers(process.pid)
    epochs = [epoch for epoch in job.epochs() if epoch.epoch > before]
    written = written_since(job.table, since)
    return Moved(
        epochs,
        footprint.memory_bytes_max,
        written.times,
        (by_workers - written.of_epochs) // len(epochs),
    )


def _written_by_workers(driver: int) -> int:
    """Return the bytes written by the workers, which write epoch files and hot state."""
    workers = [pid for pid in descendants(driver) if "python_daemon" in command_line(pid)]
    return sum(map(written_bytes, workers))


def _settle(job: RetallyJob) -> None:
    """Run the job until no merge is due."""
    epoch = job.epochs()[-1].epoch

    def due() -> bool:
        return due_merge(live_files(open_table(job.table)), epoch) is not None

    if not due():
        return
    give_up = time.monotonic() + SETTLE_SECONDS_MAX
    with job.running():
        while due():
            if time.monotonic() > give_up:
                raise BenchFailed(f"merges are still due after {SETTLE_SECONDS_MAX} s")
            time.sleep(1)
