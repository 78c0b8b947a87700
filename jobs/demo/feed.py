"""Feed: a thread that sends a shop's changes to its topic at an even rate."""

from __future__ import annotations

import threading
import time

from kafka import KafkaProducer

from jobs.demo.shop import Message, Shop

_TICK_SECONDS = 0.05


class Feed:
    """Sends changes; `sent` counts them, and is the end offsets, for nobody else writes."""

    def __init__(self, brokers: str, topic: str, shop: Shop, rate: int) -> None:
        self.sent = [0] * shop.partitions
        self.failure: BaseException | None = None
        self._topic = topic
        self._shop = shop
        self._rate = rate
        self._producer = KafkaProducer(bootstrap_servers=brokers, acks="all", linger_ms=5)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop making changes, and wait until all of them are in the topic."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        self._producer.flush()

    def close(self) -> None:
        self._ended.set()
        self._producer.close(timeout=2)

    def _run(self) -> None:
        try:
            for message in self._shop.insert_stock(_now_ms()):
                self._send(message)
            began, made = time.monotonic(), 0
            while not self._ended.wait(_TICK_SECONDS):
                due = int((time.monotonic() - began) * self._rate)
                for _ in range(due - made):
                    self._send(self._shop.change(_now_ms()))
                made = due
        except BaseException as failure:
            self.failure = failure

    def _send(self, message: Message) -> None:
        partition, value = message
        self._producer.send(self._topic, value, partition=partition)
        self.sent[partition] += 1


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
