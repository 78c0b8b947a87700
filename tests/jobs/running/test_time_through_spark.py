"""Time through Kafka, Spark and Delta: what the replay of the same messages says."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from uuid import uuid4

import pytest
import yaml
from confluent_kafka import Producer
from hypothesis import HealthCheck, Phase, assume, given, settings

from jobs.edge.kafka.admin import KafkaAdmin
from jobs.offline.replay import replay
from schemas.spec.file import load_spec
from schemas.table.epoch import EpochRow
from tests.support.examples import examples
from tests.support.histories.change_scripts import per_key, shown
from tests.support.histories.timed_specs import Epochs, Keys, histories, steps_of, value_of
from tests.support.jobs.epochs_by_hand import ByHand

CHECKOUT = Path(__file__).resolve().parents[3]
DELIVERY_SECONDS_MAX = 60
ONCE = (Phase.explicit, Phase.generate)  # an example takes seconds: a failure is not shrunk
END: Keys = {"message": "the end"}  # no JSON, so it is rejected

# The printed example of two assigners: key, value and time, of which 1551169000000 is left out.
PRINTED = [
    ("a", 1, 50_000),
    ("aa", 33, 64_001),
    ("a", 2, 54_000),
    ("a", 3, 64_002),
    ("b", 5, 100_000),
    ("a", 4, 79_003),
    ("aa", 44, 79_004),
    ("b", 6, 108_000),
]
DAY = 1_551_169_000_000


def create_topic(brokers: str, topic: str, partitions: int) -> None:
    """Create a topic that keeps its records, although their times are long ago."""
    with KafkaAdmin({"bootstrap_servers": [brokers]}) as admin:
        admin.ensure_topic(topic, partitions, {"retention.ms": "-1"})


def send(brokers: str, messages: list[tuple[str, int, bytes, int]]) -> None:
    """Send values with timestamps, in order within each partition."""
    producer = Producer({"bootstrap.servers": brokers, "acks": "all"})
    for topic, partition, value, time in messages:
        producer.produce(topic, value, partition=partition, timestamp=time)
    assert producer.flush(DELIVERY_SECONDS_MAX) == 0


def watermarks_of(rows: list[EpochRow]) -> list[int]:
    """Return the watermarks of epochs, each once."""
    found = [row.watermark for row in rows if row.watermark is not None]
    return list(dict.fromkeys(found))


# --- random specs ---------------------------------------------------------------------------------


def compare(drawn: tuple[Keys, Epochs], by_hand: ByHand) -> None:
    """Run the epochs as a replay, and as epochs of a job; compare all that they say."""
    document, history = drawn
    topics = load_spec(document).source.topics
    used = {place for messages, _ in history for place, *_ in messages}
    assume(all((topic, 0) in used or (topic, 1) not in used for topic in topics))
    assume(used)
    named = {topic: f"{topic}-{uuid4().hex}" for topic in topics}
    for topic, name in named.items():
        create_topic(by_hand.brokers, name, 2 if (topic, 1) in used else 1)
    output = list(replay(document, [*steps_of(history), END, {"flush": True}]))
    output = output[: next(at for at, each in enumerate(output) if "rejected" in each)]

    bundle = {"minibatch": {"size": 1_000_000, "latency": "1h"}}
    job = by_hand.job({**renamed(document, named), **bundle}, at=uuid4().hex, now_ms=0)
    job.pipeline.clock.tick()
    at_start = job.pipeline.clock.time.watermark  # which a replay does not write
    for messages, _ in history:
        if messages:
            send(
                by_hand.brokers,
                [
                    (named[topic], partition, value_of(row, kind, time).encode(), time)
                    for (topic, partition), row, kind, time in messages
                ],
            )
            job.epoch()
    emitted = [each["watermark"] for each in output if "watermark" in each]
    found = watermarks_of(job.epochs())
    assert found[found[:1] == [at_start] :] == emitted
    keys = len(job.plan.group)
    lines = [shown(each["op"], each["row"].values()) for each in output if "op" in each]
    assert per_key(job.lines(), keys) == per_key(lines, keys)
    late = sorted(
        (named[each.get("topic", topics[0])], each["partition"], each["offset"])
        for each in (line["late"] for line in output if "late" in line)
    )
    assert [(each["topic"], each["partition"], each["offset"]) for each in job.late()] == late


def renamed(document: Keys, named: dict[str, str]) -> Keys:
    """Return a spec that reads the topics of this run."""
    document = copy.deepcopy(document)
    document["source"]["topics"] = [
        named[each] if isinstance(each, str) else {**each, "topic": named[each["topic"]]}
        for each in document["source"]["topics"]
    ]
    return document


drawn = histories(moments=(0,))


@settings(parent=examples(5), suppress_health_check=list(HealthCheck), phases=ONCE)
@given(drawn)
def test_a_few_specs_of_time_give_what_their_replay_gives(
    by_hand: ByHand, drawn: tuple[Keys, Epochs]
) -> None:
    compare(drawn, by_hand)


@pytest.mark.slow
@pytest.mark.timeout(600)
@settings(parent=examples(10), suppress_health_check=list(HealthCheck), phases=ONCE)
@given(drawn)
def test_many_specs_of_time_give_what_their_replay_gives(
    by_hand: ByHand, drawn: tuple[Keys, Epochs]
) -> None:
    compare(drawn, by_hand)


# --- the printed examples -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("watermark", "emitted"),
    [
        (
            {"generator": "punctuated", "marker": "TRUE", "delay": "3s"},
            [47_000, 61_001, 61_002, 97_000, 105_000],
        ),
        (
            {"generator": "bounded", "delay": "0s", "exact": True},
            [50_000, 64_001, 64_002, 100_000, 108_000],
        ),
    ],
    ids=["punctuated", "periodic"],
)
def test_the_printed_watermarks_are_those_of_a_job(
    watermark: Keys, emitted: list[int], by_hand: ByHand
) -> None:
    create_topic(by_hand.brokers, by_hand.topic, 1)
    document = printed_spec(by_hand.topic, watermark)
    job = by_hand.job(document)
    for printed in PRINTED:
        send(by_hand.brokers, [message(by_hand.topic, printed)])
        job.epoch()
    assert watermarks_of(job.epochs()) == [DAY + at for at in emitted]


def test_each_topic_of_the_printed_job_has_its_own_strategy(by_hand: ByHand) -> None:
    """The job `sales` of docs/time.md."""
    text = (CHECKOUT / "docs" / "time.md").read_text(encoding="utf-8")
    (printed,) = (
        each for each in re.findall(r"```yaml\n(.*?)```", text, re.S) if "sales\n" in each
    )
    names = {name: f"{by_hand.topic}-{name}" for name in ("shop.orders", "shop.payments")}
    for name, renamed in names.items():
        create_topic(by_hand.brokers, renamed, 1)
        printed = printed.replace(name, renamed)
    document = yaml.safe_load(printed) | {"minibatch": {"size": 1_000, "latency": "1h"}}
    noon = 1_767_268_800_000  # 2026-01-01 12:00:00
    job = by_hand.job(document, now_ms=noon)
    ordered = {"shop": "a", "amount": "1", "ordered_at": "2026-01-01 12:10:00", "paid_s": None}
    paid = {"shop": "a", "amount": "2", "ordered_at": None, "paid_s": str(noon // 1_000 + 300)}
    sent = zip(names.values(), (ordered, paid), strict=True)
    send(
        by_hand.brokers,
        [(name, 0, value_of(row, "INSERT", noon).encode(), noon) for name, row in sent],
    )
    assert job.epoch().watermark == noon + 240_000 - 1, "12:05 - 1m, of the payments"
    for _ in range(3):  # Flink's timer: idle two probes after the last record
        newest = job.time_epoch(6_000)
    assert newest.watermark == noon + 595_000 - 1, "12:10 - 5s, for the payments are idle"


def printed_spec(topic: str, watermark: Keys) -> Keys:
    return {
        "source": {"topic": topic},
        "columns": {"k": "STRING", "v": "INT", "t": "BIGINT"},
        "query": "SELECT k, SUM(v) AS s FROM t GROUP BY k",
        "watermark": {"time": {"column": "t"}, **watermark},
        "minibatch": {"size": 1_000, "latency": "1h"},
    }


def message(topic: str, printed: tuple[str, int, int]) -> tuple[str, int, bytes, int]:
    k, v, at = printed
    row = {"k": k, "v": str(v), "t": str(DAY + at)}
    return topic, 0, value_of(row, "INSERT", DAY + at).encode(), DAY + at
