"""Hosts on one machine: a network namespace each, and a router between them.

    Network("kafka", "service", ...) ──► address of each, and how to start a process there
      .cut("service", "kafka") ... .heal()

It needs root, and leaves no namespace and no device.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import pytest

from tests.support.network.router import DEVICE, enter, near_device

T = TypeVar("T")
NEAR = 254  # the test itself
PACKET_BYTES = 1_500


class Network:
    """The hosts, while the block runs."""

    def __init__(self, *names: str, delay_ms: float = 0, loss: float = 0) -> None:
        self._prefix = f"10.{random.randint(64, 127)}.{random.randint(1, 254)}"
        self._mark = f"rt{os.getpid()}"
        self._numbers = {name: number for number, name in enumerate(names, start=1)}
        self._delay, self._loss = delay_ms / 1_000, loss
        self._router: subprocess.Popen[str] | None = None

    def address(self, name: str) -> str:
        return f"{self._prefix}.{self._numbers[name]}"

    def command(self, name: str) -> list[str]:
        """Return the words before a command that runs it on a host."""
        return [_find_ip(), "netns", "exec", self._namespace(name)]

    def on_host(self, name: str, work: Callable[[], T]) -> T:
        """Do some work in a thread on a host; the processes that it starts stay there."""
        outcome: list[T] = []
        failures: list[BaseException] = []

        def run() -> None:
            try:
                enter(self._namespace(name))
                outcome.append(work())
            except BaseException as failure:
                failures.append(failure)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        if failures:
            raise failures[0]
        return outcome[0]

    # --- faults -----------------------------------------------------------------------------------

    def cut(self, one: str, other: str) -> None:
        """Let no packet pass between two hosts."""
        self._ask(f"cut {self._numbers[one]} {self._numbers[other]}")

    def heal(self) -> None:
        self._ask("heal")

    @contextmanager
    def partition(self, *pairs: tuple[str, str], seconds: float) -> Iterator[Callable[[], int]]:
        """Cut some pairs, and heal them at the end of the block, after `seconds` at least."""
        before, began = self.count()["cut"], time.monotonic()
        for one, other in pairs:
            self.cut(one, other)
        try:
            yield lambda: self.count()["cut"] - before
            time.sleep(max(0.0, began + seconds - time.monotonic()))
        finally:
            self.heal()

    def count(self) -> dict[str, int]:
        """Return how many packets passed, were lost, and were cut."""
        counts: dict[str, int] = json.loads(self._ask("count"))
        return counts

    def _ask(self, command: str) -> str:
        assert self._router is not None
        assert self._router.stdin is not None and self._router.stdout is not None
        self._router.stdin.write(f"{command}\n")
        self._router.stdin.flush()
        return self._router.stdout.readline()

    # --- set-up -----------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        try:
            for name in self._numbers:
                _ip("netns", "add", self._namespace(name))
            named = [f"{number}={self._namespace(name)}" for name, number in self._numbers.items()]
            options = [str(self._delay), str(self._loss), str(NEAR), *named, f"{NEAR}="]
            self._router = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("router.py")), *options],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            assert self._router.stdout is not None
            assert self._router.stdout.readline() == "ready\n", "the router did not start"
            for name in self._numbers:
                self._bring_up(self.command(name), DEVICE, self.address(name))
            self._bring_up([], near_device(self._router.pid), f"{self._prefix}.{NEAR}")
        except BaseException:
            self.close()
            raise
        return self

    @staticmethod
    def _bring_up(within: list[str], device: str, address: str) -> None:
        for words in (
            ["link", "set", "lo", "up"],
            ["link", "set", device, "mtu", str(PACKET_BYTES), "up"],
            ["addr", "add", f"{address}/24", "dev", device],
        ):
            subprocess.run([*within, _find_ip(), *words], check=True, capture_output=True)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._router is not None:
            self._router.kill()
            self._router.wait()
        for name in self._numbers:
            subprocess.run([_find_ip(), "netns", "del", self._namespace(name)], check=False)

    def _namespace(self, name: str) -> str:
        return f"{self._mark}-{name}"


def _find_ip() -> str:
    return shutil.which("ip", path=f"{os.environ['PATH']}:/usr/sbin:/sbin") or "ip"


def _ip(*words: str) -> None:
    subprocess.run([_find_ip(), *words], check=True, capture_output=True)


def needs_namespaces() -> Any:
    """Skip where there are no network namespaces for us."""
    able = sys.platform == "linux" and os.geteuid() == 0 and Path("/dev/net/tun").exists()
    reason = "NOT TESTED BETWEEN HOSTS: network namespaces need Linux, root, ip and /dev/net/tun"
    return pytest.mark.skipif(not able, reason=reason)
