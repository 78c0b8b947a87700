"""The demo's source: changes of a table, sent at an even rate from a thread.

    topic's end offsets ──► make the same changes again, unsent, up to there ──► send the next ones

A seed determines all changes of a shop. `python -m jobs.demo.source` sends the products' alone, to
existing brokers. If it starts again it makes all changes again, and sends the changes that each
partition does not have. So the table's history has no gap and no repetition, however it ended.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from kafka import KafkaProducer
from kafka.errors import KafkaError

from jobs.demo.shop import Message, Shop
from jobs.demo.specs import PARTITIONS, SOURCE_TOPIC
from jobs.edge.kafka.admin import KafkaAdmin
from schemas.spec.connections import BROKERS_DEFAULT
from schemas.types.moments import now_ms

Messages = Iterator[Message | None]
RATE_DEFAULT = 400
_TICK_SECONDS = 0.05
_HEARTBEAT_SECONDS = 1.0


def make_changes(shop: Shop, there: Mapping[int, int]) -> Messages:
    """Yield the changes that the topic does not have, for ever; None for one that it has."""
    made = dict.fromkeys(range(shop.partitions), 0)
    stock = shop.insert_stock(now_ms())
    while True:
        message = next(stock, None) or shop.change(now_ms())
        partition = message[0]
        made[partition] += 1
        yield message if made[partition] > there.get(partition, 0) else None


class Feed(threading.Thread):
    """Sends changes; `sent` counts them."""

    def __init__(self, brokers: str, topic: str, messages: Messages, rate: int) -> None:
        super().__init__(name=f"feed of {topic}", daemon=True)
        self.topic = topic
        self.sent = 0
        self.failure: BaseException | None = None
        self.ended = threading.Event()
        self._messages = messages
        self._rate = rate
        # One batch at a time for each partition: so each partition has a prefix of its changes.
        self._producer = KafkaProducer(
            bootstrap_servers=brokers.split(","), acks="all", enable_idempotence=True
        )

    def stop(self) -> None:
        """Stop making changes, and wait until all of them are in the topic."""
        self.ended.set()
        self.join()
        self._producer.flush()

    def close(self) -> None:
        self.ended.set()
        self._producer.close(timeout=2)

    def run(self) -> None:
        try:
            began, sent = time.monotonic(), 0
            while not self.ended.is_set():
                if sent > (time.monotonic() - began) * self._rate:
                    self.ended.wait(_TICK_SECONDS)
                    continue
                message = next(self._messages)
                if message is None:
                    began = time.monotonic()  # the rate counts from the first message that is sent
                    continue
                partition, value = message
                result = self._producer.send(self.topic, value, partition=partition)
                result.add_errback(self._fail)
                self.sent += 1
                sent += 1
        except BaseException as failure:
            self._fail(failure)

    def _fail(self, failure: BaseException) -> None:
        """End if a message is lost, for it would leave a gap; the next start sends it."""
        self.failure = failure
        self.ended.set()


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, default=1, help="the seed of the shop's changes (1)")
    parser.add_argument(
        "--rate", type=int, default=RATE_DEFAULT, help=f"changes a second ({RATE_DEFAULT})"
    )


def main() -> int:
    """Send until SIGTERM, then wait until all messages are in the topic."""
    parser = argparse.ArgumentParser(prog="python -m jobs.demo.source")
    parser.add_argument("--brokers", default=BROKERS_DEFAULT, metavar="HOST:PORT")
    parser.add_argument("--heartbeat", type=Path, metavar="FILE", help="touch it once a second")
    add_options(parser)
    options = parser.parse_args()
    try:
        with KafkaAdmin({"bootstrap_servers": options.brokers.split(",")}) as admin:
            admin.ensure_topic(SOURCE_TOPIC, PARTITIONS, {})
            there = admin.end_offsets(SOURCE_TOPIC)
        print(f"source: {SOURCE_TOPIC} has {sum(there.values())} messages", flush=True)
        changes = make_changes(Shop(options.seed, PARTITIONS), there)
        feed = Feed(options.brokers, SOURCE_TOPIC, changes, options.rate)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: feed.ended.set())
        feed.start()
        while not feed.ended.wait(_HEARTBEAT_SECONDS):
            if options.heartbeat is not None:
                options.heartbeat.touch()
        feed.stop()
        if feed.failure is not None:
            raise feed.failure
        feed.close()
    except KafkaError as error:
        print(f"source: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
