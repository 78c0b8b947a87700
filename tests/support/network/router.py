"""A router between network namespaces that delays, loses and cuts: a process of its own.

    TUN of a host ──► due at now + delay, or lost, or cut ──► TUN of the destination

    stdin:  cut A B | heal | count            stdout:  ready | ok | {"passed": .., "lost": ..}

Its packets are real IP, so a lost one is repeated by the kernels' TCP, as in a network. tc's netem
does the same, but not every kernel has it.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import json
import os
import random
import select
import struct
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

_TUNSETIFF = 0x400454CA
_IFF_TUN_NO_PACKET_INFO = 0x0001 | 0x1000
_CLONE_NEWNET = 0x40000000
_PACKET_BYTES_MAX = 2_048
_READ_AT_ONCE = 64
DEVICE = "retally0"


def near_device(router: int) -> str:
    """Name the device of the test itself, whose namespace has one for each router that runs."""
    return f"retally{router}"


def enter(namespace: str | None) -> None:
    """Move this thread into a network namespace, or back into that of the process."""
    path = Path("/proc/self/ns/net") if namespace is None else Path("/run/netns") / namespace
    with path.open() as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter {path}")


def open_device(namespace: str) -> int:
    """Open the TUN device of a namespace; it disappears with its descriptor."""
    name = DEVICE if namespace else near_device(os.getpid())
    with Path("/proc/self/ns/net").open() as home:
        if namespace:
            enter(namespace)
        try:
            device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
            request = struct.pack("16sH", name.encode(), _IFF_TUN_NO_PACKET_INFO)
            fcntl.ioctl(device, _TUNSETIFF, request)
        finally:
            ctypes.CDLL(None).setns(home.fileno(), _CLONE_NEWNET)
    return device


@dataclass(slots=True)
class Router:
    """The packets on their way. A host is the last byte of its address."""

    devices: dict[int, int]  # host to descriptor
    delay: float
    loss: float
    near: int  # the host of the test itself, which has no delay and no loss
    cuts: set[frozenset[int]] = field(default_factory=set)
    counts: dict[str, int] = field(default_factory=lambda: {"passed": 0, "lost": 0, "cut": 0})
    _queue: list[tuple[float, int, int, bytes]] = field(default_factory=list)
    _number: int = 0
    _random: random.Random = field(default_factory=lambda: random.Random(1))

    def read(self, source: int) -> None:
        """Read what a host has sent."""
        now = time.monotonic()
        for _ in range(_READ_AT_ONCE):
            try:
                packet = os.read(self.devices[source], _PACKET_BYTES_MAX)
            except BlockingIOError:
                return
            if packet[0] >> 4 == 4:  # no IPv6: its neighbors look for routers
                self._take(now, source, packet[19], packet)

    def _take(self, now: float, source: int, target: int, packet: bytes) -> None:
        if target not in self.devices:
            return
        far = self.near not in (source, target)
        if frozenset((source, target)) in self.cuts:
            self.counts["cut"] += 1
        elif far and self._random.random() < self.loss:
            self.counts["lost"] += 1
        else:
            self.counts["passed"] += 1
            self._number += 1
            heapq.heappush(
                self._queue, (now + (self.delay if far else 0), self._number, target, packet)
            )

    def write_due(self) -> float | None:
        """Write what has arrived; return the seconds until the next packet arrives."""
        while self._queue:
            wait = self._queue[0][0] - time.monotonic()
            if wait > 0:
                return wait
            _, _, target, packet = heapq.heappop(self._queue)
            try:
                os.write(self.devices[target], packet)
            except OSError:  # a full queue loses packets, as a real one does
                self.counts["lost"] += 1
        return None

    def obey(self, line: str) -> str:
        command, *hosts = line.split()
        if command == "cut":
            self.cuts.add(frozenset(map(int, hosts)))
        elif command == "heal":
            self.cuts.clear()
        return json.dumps(self.counts)


def main(delay: float, loss: float, near: int, namespaces: list[str]) -> None:
    """Route until stdin ends. `namespaces`: HOST=NAME, and an empty name for this one."""
    named = dict(each.split("=", 1) for each in namespaces)
    router = Router(
        {int(host): open_device(name) for host, name in named.items()}, delay, loss, near
    )
    poll = select.epoll()
    by_descriptor = {device: host for host, device in router.devices.items()}
    for device in by_descriptor:
        poll.register(device, select.EPOLLIN)
    poll.register(sys.stdin.fileno(), select.EPOLLIN)
    print("ready", flush=True)
    while True:
        wait = router.write_due()
        for descriptor, _ in poll.poll(-1 if wait is None else wait):
            if descriptor != sys.stdin.fileno():
                router.read(by_descriptor[descriptor])
                continue
            line = sys.stdin.readline()
            if not line:
                return
            print(router.obey(line), flush=True)


if __name__ == "__main__":
    main(float(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
