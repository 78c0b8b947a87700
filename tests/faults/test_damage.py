"""Damaged files of every kind: a job refuses them by name, or goes on and is right all the same.

a job's directory, copied ─► one file flipped, cut, emptied or gone ─► retally run, more changes
                                          refused, with a reason ─┴─ done: the audit agrees
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from jobs.edge.process.broker import Broker
from jobs.reading.files import live_files, open_table
from tests.support.command.shop import Shop, ordered
from tests.support.faults.load import spec
from tests.support.faults.tally import FaultTally
from tests.support.jobs.running_job import RunningJob

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.faults, pytest.mark.timeout(2_400)]

EPOCHS, CHANGES = 120, 20  # enough for merges and a checkpoint
Files = Callable[[RunningJob], list[Path]]


def _live(part: str, newest: bool) -> Files:
    def found(job: RunningJob) -> list[Path]:
        mine = [file for file in live_files(open_table(job.table)) if file.part == part]
        chosen = sorted(mine, key=lambda file: file.epoch_max)[-1 if newest else 0]
        return [job.table / chosen.path]

    return found


def _of_log(pattern: str, place: int) -> Files:
    return lambda job: [sorted((job.table / "_delta_log").glob(pattern))[place]]


def _cache(name: str) -> Files:
    return lambda job: sorted((job.data / "cache").rglob(name))


@dataclass(frozen=True, slots=True)
class Kind:
    name: str
    files: Files
    keeps_cache: bool = False  # else the state is read from the table again


KINDS = (
    Kind("newest accumulators", _live("accumulators", True)),
    Kind("oldest accumulators", _live("accumulators", False)),
    Kind("newest multisets", _live("multisets", True)),
    Kind("oldest multisets", _live("multisets", False)),
    Kind("newest changelog", _live("changelog", True)),
    Kind("oldest changelog", _live("changelog", False)),
    Kind("newest epochs", _live("epochs", True)),
    Kind("oldest epochs", _live("epochs", False)),
    Kind("newest log entry", _of_log("*[0-9].json", -1)),
    Kind("oldest log entry", _of_log("*[0-9].json", 0)),
    Kind("checkpoint", _of_log("*.checkpoint.parquet", -1)),
    Kind("last checkpoint's name", _of_log("_last_checkpoint", -1)),
    Kind("hot states", _cache("columns"), keeps_cache=True),
)


def _flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.write_bytes(content)


WAYS: dict[str, Callable[[Path], object]] = {
    "flipped": _flipped,
    "cut": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "emptied": lambda path: path.write_bytes(b""),
    "gone": Path.unlink,
}


@pytest.fixture(scope="module")
def shop(broker: Broker) -> Shop:
    return Shop(broker.address, f"shop-{uuid.uuid4().hex[:8]}", seed=44)


@pytest.fixture(scope="module")
def whole(broker: Broker, shop: Shop, tmp_path_factory: pytest.TempPathFactory) -> RunningJob:
    """A job that has merged files and a checkpoint, and changes that it has not read yet."""
    told = spec(shop.topic) | {"minibatch": {"size": 1, "max_rows": CHANGES + 1}}
    del told["sink"]  # each copy is a job of its own, and they would publish into one topic
    job = RunningJob(told, tmp_path_factory.mktemp("whole"), broker.address)
    for _ in range(EPOCHS):
        shop.feed(CHANGES)
    job.must_run_by_itself()
    assert list((job.table / "_delta_log").glob("*.checkpoint.parquet"))
    shop.feed(5 * CHANGES)
    return job


def test_damage_is_refused_by_name_or_made_good(
    whole: RunningJob, shop: Shop, tmp_path: Path
) -> None:
    tally = FaultTally("damaged files", inputs=len(KINDS) * len(WAYS))
    wrong = []
    for kind in KINDS:
        for way, damage in WAYS.items():
            home = tmp_path / f"{kind.name}-{way}".replace(" ", "-").replace("'", "")
            tally.plan(f"{kind.name} {way}")
            problem = outcome(whole, shop, home, kind, damage, tally)
            tally.fire(f"{kind.name} {way}")
            if problem:
                wrong.append(f"{kind.name}, {way}: {problem}")
            shutil.rmtree(home)
    tally.lost = len(wrong)
    assert not wrong, "\n".join(wrong)
    tally.close()


def outcome(
    whole: RunningJob,
    shop: Shop,
    home: Path,
    kind: Kind,
    damage: Callable[[Path], object],
    tally: FaultTally,
) -> str | None:
    """What is wrong with what a job made of a damaged file; None for a refusal or the truth."""
    shutil.copytree(whole.home, home)
    job = RunningJob(whole.spec, home, whole.brokers)
    files = kind.files(job)
    for path in files:
        damage(path)
    if not kind.keeps_cache:
        shutil.rmtree(job.data / "cache")
    code, said = job.run()
    if code == 0:
        tally.outputs += 1
        if ordered(job.ask("results", "items")) != shop.truth():
            return "it went on, and is wrong"
        return None
    failure = json.loads((job.table.parent / "failure.json").read_text())
    if failure["retryable"] or failure["code"] == "failed":
        return f"no clear refusal: {failure['code']}: {failure['reason'][:300]}; {said[-300:]}"
    return None
