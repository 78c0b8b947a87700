"""Every change script through Kafka, Spark and Delta: the table says what the script says.

The same scripts hold for the core alone; here a bundle is an epoch over a real topic, the hot
state is LMDB, and what is compared was read back from the table's Parquet files.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest

from schemas.table.epoch import EpochRow
from tests.support.histories.change_scripts import Script, ScriptedBundle, per_key, scripts
from tests.support.jobs.epochs_by_hand import ByHand, EpochsByHand
from tests.support.jobs.running_job import produce


def noticed(row: EpochRow, below_zero_before: int) -> list[str]:
    """What the epoch's counters say beyond its changelog, as scripts write it."""
    names = {
        "dropped": "dropped_retractions",
        "unmatched": "unmatched_retractions",
        "misfits": "misfits",
    }
    counts = {word: row.counters.get(name, 0) for word, name in names.items()}
    counts["below_zero"] = row.counts.groups_below_zero - below_zero_before
    return [f"{word} {count}" for word, count in counts.items() if count]


NOON = 1_767_268_800_000  # 2026-01-01 12:00:00


def is_lossy(script: Script) -> bool:
    """Whether what the script keeps in the table is more than numbers and single values: timers,
    and values of several columns."""
    timed = any(not bundle.changes for bundle in script.bundles)
    return timed or "ORDER BY" in script.query or "ARG_MAX" in script.query


def sampled(found: list[Script], every: int) -> list[object]:
    """All of them as parameters: one in `every` for `make test-all`, half of these for `make test`
    too, the others for `make faults`."""
    return [
        pytest.param(each, id=each.name, marks=_marks(number, every))
        for number, each in enumerate(found)
    ]


def _marks(number: int, every: int) -> list[pytest.MarkDecorator]:
    if number % every:
        return [pytest.mark.faults]
    return [pytest.mark.slow] if number % (2 * every) else []


LOSSY = [script for script in scripts() if is_lossy(script)]
OTHERS = [script for script in scripts() if script not in LOSSY]


@pytest.fixture
def open_script(by_hand: ByHand) -> Callable[[Script], EpochsByHand]:
    def opened(script: Script) -> EpochsByHand:
        partitions = {change.partition for bundle in script.bundles for change in bundle.changes}
        document = script.spec(source={"topic": by_hand.topic, "format": "changelog-json"})
        if script.event_clock:  # the scripts say themselves when a bundle ends
            document["minibatch"] = {"clock": "event", "interval": "9999d"}
        return by_hand.job(document, partitions=1 + max(partitions), now_ms=NOON)

    return opened


def run_bundle(job: EpochsByHand, script: Script, bundle: ScriptedBundle) -> None:
    before = job.pipeline.newest.counts.groups_below_zero
    if bundle.changes:
        produce(job.brokers, job.spec.source.topics[0], script.records(bundle))
        row = job.epoch()
        assert row.counters["rows"] == len(bundle.changes)
    else:
        row = job.release() if bundle.release else job.time_epoch(bundle.clock_ms)
    lines = job.lines(row.epoch) + noticed(row, before)
    key_columns = len(job.plan.group)
    assert per_key(lines, key_columns) == per_key(bundle.expected, key_columns)
    if script.emit_expired:  # else the changelog does not say which groups there are
        job.results()


@pytest.mark.parametrize("script", sampled(OTHERS, 4))
def test_the_script_holds_through_kafka_spark_and_delta(
    script: Script, open_script: Callable[[Script], EpochsByHand]
) -> None:
    job = open_script(script)
    for bundle in script.bundles:
        run_bundle(job, script, bundle)


@pytest.mark.parametrize("script", sampled(LOSSY, 2))
def test_the_script_holds_whatever_is_lost_between_its_bundles(
    script: Script, open_script: Callable[[Script], EpochsByHand]
) -> None:
    """What a group remembers and what time is to make due is in the table, and nowhere else."""
    job = open_script(script)
    for number, bundle in enumerate(script.bundles):
        run_bundle(job, script, bundle)
        if number % 3:
            job.restart()
        if number % 3 == 2:
            shutil.rmtree(job.cache, ignore_errors=True)
