"""Patience: waits as long as something moves. A busy machine is slow, and not broken."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

STALL_SECONDS_MAX = 600.0  # a start of Spark took three minutes on a machine with load 50


class DemoFailed(Exception):
    """The demo cannot continue; the message says why."""


@dataclass(slots=True)
class Patience:
    """The time since a sign of progress last changed."""

    seconds_max: float = STALL_SECONDS_MAX
    _sign: object = None
    _since: float = field(default_factory=time.monotonic)

    def observe(self, sign: object) -> float:
        """Return for how many seconds the sign has been the same."""
        if sign != self._sign:
            self._sign, self._since = sign, time.monotonic()
        return time.monotonic() - self._since

    def require(self, sign: object, what: str) -> None:
        """Raise DemoFailed if the sign has not changed for too long."""
        if self.observe(sign) > self.seconds_max:
            raise DemoFailed(f"{what}, and nothing has moved for {self.seconds_max:.0f} s")
