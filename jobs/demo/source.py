"""The demo's source alone, for existing brokers: python -m jobs.demo.source.

    topic's end offsets ──► make the same changes again, unsent, up to there ──► send the next ones

A seed determines all changes of a shop. A source that starts again makes all of them again, and
sends the changes that each partition does not have. So the table's history has no gap and no
repetition, however the source ended.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

from kafka import KafkaProducer
from kafka.errors import KafkaError

from jobs.demo.run import RATE_DEFAULT
from jobs.demo.shop import Message, Shop
from jobs.demo.specs import PARTITIONS, SOURCE_TOPIC
from jobs.edge.kafka.admin import KafkaAdmin
from schemas.spec.connections import BROKERS_DEFAULT

_TICK_SECONDS = 0.05
_HEARTBEAT_SECONDS = 1.0


def make_changes(shop: Shop, there: Mapping[int, int]) -> Iterator[Message | None]:
    """Yield the changes that the topic does not have, for ever; None for one that it has."""
    made = dict.fromkeys(range(shop.partitions), 0)
    stock = iter(shop.insert_stock(_now_ms()))
    while True:
        message = next(stock, None) or shop.change(_now_ms())
        partition = message[0]
        made[partition] += 1
        yield message if made[partition] > there.get(partition, 0) else None


def main(brokers: str, seed: int, rate: int, heartbeat: Path | None) -> int:
    """Send until SIGTERM, then wait until all messages are in the topic."""
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    try:
        with KafkaAdmin({"bootstrap_servers": brokers.split(",")}) as admin:
            admin.ensure_topic(SOURCE_TOPIC, PARTITIONS, {})
            there = admin.end_offsets(SOURCE_TOPIC)
        print(f"source: {SOURCE_TOPIC} has {sum(there.values())} messages", flush=True)
        # One batch at a time for each partition: so each partition has a prefix of its changes.
        producer = KafkaProducer(
            bootstrap_servers=brokers.split(","), acks="all", enable_idempotence=True
        )
        with closing(producer):
            _send(producer, make_changes(Shop(seed, PARTITIONS), there), rate, heartbeat, ended)
            producer.flush()
    except KafkaError as error:
        print(f"source: {error}", file=sys.stderr)
        return 1
    return 0


def _send(
    producer: KafkaProducer,
    messages: Iterator[Message | None],
    rate: int,
    heartbeat: Path | None,
    ended: threading.Event,
) -> None:
    began, sent, beat = time.monotonic(), 0, 0.0
    while not ended.is_set():
        now = time.monotonic()
        if heartbeat is not None and now - beat >= _HEARTBEAT_SECONDS:
            heartbeat.touch()
            beat = now
        if sent > (now - began) * rate:
            ended.wait(_TICK_SECONDS)
            continue
        message = next(messages)
        if message is not None:
            producer.send(SOURCE_TOPIC, message[1], partition=message[0]).add_errback(_give_up)
            sent += 1
        else:
            began = now  # the rate counts from the first message that is sent


def _give_up(error: BaseException) -> None:
    """End if a message is lost, for it would leave a gap; the next start sends it."""
    print(f"source: {error}", file=sys.stderr, flush=True)
    signal.raise_signal(signal.SIGTERM)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m jobs.demo.source")
    parser.add_argument("--brokers", default=BROKERS_DEFAULT, metavar="HOST:PORT")
    parser.add_argument("--seed", type=int, default=1, help="the seed of the shop's changes (1)")
    parser.add_argument(
        "--rate", type=int, default=RATE_DEFAULT, help=f"changes a second ({RATE_DEFAULT})"
    )
    parser.add_argument(
        "--heartbeat",
        type=Path,
        metavar="FILE",
        help="touch this file once a second",
    )
    return parser


if __name__ == "__main__":
    options = _build_parser().parse_args()
    sys.exit(main(options.brokers, options.seed, options.rate, options.heartbeat))
