"""What may happen to a source, and to a job's right to read it: `retally run` as users call it.

Whatever would skip changes silently ends the job with one sentence that says what is wrong, and
the table stays as it is. A JVM is dear, so one job lives through all that it survives.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kafka import TopicPartition

from jobs.edge.kafka.admin import KafkaAdmin
from jobs.edge.process.broker import Broker
from jobs.edge.table.delta_epochs import EpochTable
from tests.support.jobs.canal_messages import insert, row
from tests.support.jobs.running_job import (
    RUN_SECONDS_MAX,
    RunningJob,
    create_topic,
    produce,
    producer_for,
)
from tests.support.topics import add_partitions, admin_client

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow]

TOPIC = "products-of-a-changing-source"
OWNED_ELSEWHERE = 75
WAIT_SECONDS = 90
EACH = 5  # messages to a partition, each time some are written


@dataclass(slots=True)
class Life:
    """A job that ran twice while its topic grew from 2 partitions to 4 to 6, and what was seen."""

    job: RunningJob
    counted: list[dict[str, Any]]
    second_run: tuple[int, str]
    ended: tuple[int, str]


@pytest.fixture(scope="module")
def life(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Life]:
    create_topic(broker.address, TOPIC, 2)
    job = RunningJob(spec_of(TOPIC), tmp_path_factory.mktemp("life"), broker.address)
    fill(broker, TOPIC, range(2))
    job.must_run()
    add_partitions(broker.address, TOPIC, 4)
    fill(broker, TOPIC, range(4))
    running = job.start(caught_up=False)
    try:
        await_read(job, running, EACH * (2 + 4))
        add_partitions(broker.address, TOPIC, 6)
        fill(broker, TOPIC, range(6))
        await_read(job, running, EACH * (2 + 4 + 6))
        second_run = job.run()
        running.send_signal(signal.SIGTERM)
        said, _ = running.communicate(timeout=RUN_SECONDS_MAX)
    finally:
        running.kill()
    counted = job.ask("results", "items")
    yield Life(job, counted, second_run, (running.returncode, said))


def spec_of(topic: str) -> dict[str, Any]:
    return {
        "name": "items",
        "source": {"topic": topic},
        "columns": {"k": "STRING", "v": "INT"},
        "query": "SELECT k, COUNT(*) AS n, SUM(v) AS s FROM t GROUP BY k",
        "minibatch": {"size": 1},
        "state": {"buckets": 4},
    }


def fill(broker: Broker, topic: str, partitions: range) -> None:
    """Rows whose group is their partition; by a producer that knows the topic as it is now."""
    producer_for.cache_clear()
    messages = [(number, insert(row(f"p{number}", number))) for number in partitions]
    produce(broker.address, topic, messages * EACH)


def await_that(seen: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not seen():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def await_read(job: RunningJob, process: subprocess.Popen[str], messages: int) -> None:
    """Wait until so many messages are in committed epochs; more are an error at once."""

    def seen() -> bool:
        assert process.poll() is None, process.communicate()[0]
        read = read_by(job)
        assert read <= messages, f"{read} messages were read of {messages}"
        return read == messages

    await_that(seen)


def read_by(job: RunningJob) -> int:
    if not EpochTable.exists(job.table):
        return 0
    return sum(int(each.counters.get("read", 0)) for each in job.epochs())


def must_refuse(job: RunningJob, *words: str) -> None:
    """It ends with 1 and one sentence that has these words, and the table is as it was."""
    before = job.epochs()
    code, said = job.run()
    assert code == 1, said
    lines = [line for line in said.splitlines() if line.startswith("retally: ")]
    assert len(lines) == 1, said
    assert "Traceback" not in said
    for word in words:
        assert word in lines[0], lines[0]
    assert job.epochs() == before


def test_a_topic_that_the_spec_gets_later_is_read_from_its_first_record(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    late = f"{topic}-late"
    for name in (topic, late):
        create_topic(broker.address, name, 1)
        fill(broker, name, range(1))
    RunningJob(spec_of(topic), tmp_path, broker.address).must_run()
    with admin_client(broker.address) as admin:
        admin.delete_records({TopicPartition(late, 0): 2})
    job = RunningJob(
        spec_of(topic) | {"source": {"topics": [topic, late]}}, tmp_path, broker.address
    )
    job.must_run()
    assert job.ask("results", "items") == [{"k": "p0", "n": EACH + EACH - 2, "s": 0}]


def test_partitions_added_between_runs_and_under_a_running_job_are_read(life: Life) -> None:
    times = {0: 3, 1: 3, 2: 2, 3: 2, 4: 1, 5: 1}
    assert life.counted == [
        {"k": f"p{number}", "n": EACH * often, "s": EACH * often * number}
        for number, often in times.items()
    ]
    newest = life.job.epochs()[-1]
    assert newest.offsets == {TOPIC: {str(p): EACH * often for p, often in times.items()}}


def test_a_second_run_of_a_running_job_ends_with_75_and_names_the_holder(life: Life) -> None:
    code, said = life.second_run
    assert code == OWNED_ELSEWHERE, said
    assert "'items' is owned by process" in said


def test_sigterm_ends_a_running_job_with_0(life: Life) -> None:
    assert life.ended[0] == 0, life.ended[1]


def test_a_changed_query_under_the_same_name_is_refused(life: Life) -> None:
    query = life.job.spec["query"]
    changed = {**life.job.spec, "query": query.replace("SUM", "MAX")}
    must_refuse(RunningJob(changed, life.job.home, life.job.brokers), "'items'", "another query")
    retyped = {**life.job.spec, "columns": {"k": "STRING", "v": "BIGINT"}}
    must_refuse(RunningJob(retyped, life.job.home, life.job.brokers), "'items'", "column types")


def test_changes_that_the_source_lost_are_told_and_not_skipped(life: Life, broker: Broker) -> None:
    """Retention passes the job; then someone deletes the topic and makes it again, longer."""
    job, stands = life.job, EACH * 3
    lost = 4
    fill(broker, TOPIC, range(2))
    with admin_client(broker.address) as admin:
        admin.delete_records({TopicPartition(TOPIC, 1): stands + lost})
    must_refuse(job, f"{TOPIC}/1", f"at offset {stands},", f"{lost} offsets are lost")
    with KafkaAdmin({"bootstrap_servers": [broker.address]}) as admin:
        before = admin.topic(TOPIC)
        assert before is not None
        with admin_client(broker.address) as client:
            client.delete_topics([TOPIC])
        await_that(lambda: admin.topic(TOPIC) is None)
        must_refuse(job, f"{TOPIC!r} does not exist")
        again = admin.ensure_topic(TOPIC, 6, {})
    for _ in range(4):
        fill(broker, TOPIC, range(6))
    must_refuse(job, f"{TOPIC!r} was deleted and created again", before.id, again.id)


def test_a_topic_that_is_deleted_under_a_running_job_stops_it(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    create_topic(broker.address, topic, 2)
    job = RunningJob(spec_of(topic), tmp_path, broker.address)
    fill(broker, topic, range(2))
    running = job.start(caught_up=False)
    try:
        await_read(job, running, 2 * EACH)
        with admin_client(broker.address) as client:
            client.delete_topics([topic])
        said, _ = running.communicate(timeout=WAIT_SECONDS)
    finally:
        running.kill()
    assert running.returncode == 1, said
    assert f"retally: source topic {topic!r} does not exist" in said
    assert read_by(job) == 2 * EACH


def test_a_topic_that_is_made_again_under_a_running_job_stops_it_before_it_is_read(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    """Spark asks again for some seconds before it gives up, and goes by names and offsets."""
    create_topic(broker.address, topic, 2)
    job = RunningJob(spec_of(topic), tmp_path, broker.address)
    fill(broker, topic, range(2))
    running = job.start(caught_up=False)
    try:
        await_read(job, running, 2 * EACH)
        with KafkaAdmin({"bootstrap_servers": [broker.address]}) as admin:
            with admin_client(broker.address) as client:
                client.delete_topics([topic])
            await_that(lambda: admin.topic(topic) is None)
            admin.ensure_topic(topic, 2, {})
        for _ in range(4):
            fill(broker, topic, range(2))
        said, _ = running.communicate(timeout=WAIT_SECONDS)
    finally:
        running.kill()
    assert running.returncode == 1, said
    assert f"retally: topic {topic!r} was deleted and created again" in said
    assert read_by(job) == 2 * EACH
