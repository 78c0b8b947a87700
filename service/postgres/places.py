"""Places of PostgreSQL's clients: how many there are, and who may cancel what.

connection ──► waiting, until it has signed in ──► one of its token's, one of all
                  └ too many wait: the oldest is ended
"""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from schemas import limits
from service.postgres.certificate import Certificate
from service.postgres.messages import PgError
from service.runtime import Runtime

TOO_MANY = "53300"


class Place(Protocol):
    """A connection, as others know it."""

    who: str
    shared: bool  # others have the same name
    key: tuple[int, int]

    def end(self) -> None: ...
    def abort(self) -> None: ...
    def cancel(self) -> None: ...


class Places:
    """Call it on the event loop only."""

    def __init__(self, runtime: Runtime, certificate: Certificate | None) -> None:
        self.runtime = runtime
        self.certificate = certificate  # without TLS, None
        self.held_bytes = 0  # of answers that clients have not read
        self._waiting: dict[Place, None] = {}  # the oldest first
        self._signed_in: dict[tuple[int, int], Place] = {}

    def add(self, place: Place) -> None:
        """Add a connection that has not signed in; end the oldest of them if there are too many."""
        self._waiting[place] = None
        if len(self._waiting) > limits.POSTGRES_WAITING_MAX:
            oldest = next(iter(self._waiting))
            del self._waiting[oldest]
            oldest.abort()
            self.refuse(TOO_MANY)
        self._count()

    def admit(self, place: Place) -> None:
        """Count a connection that has signed in; raise a PgError if there are too many."""
        own = Counter(each.who for each in self._signed_in.values())[place.who]
        own_max = limits.POSTGRES_CONNECTIONS_OF_TOKEN_MAX
        if len(self._signed_in) >= limits.POSTGRES_CONNECTIONS_MAX or (
            own >= own_max and not place.shared
        ):
            reason = f"too many connections: {len(self._signed_in)}, {own} of them of this token"
            raise PgError(TOO_MANY, reason, fatal=True)
        self._waiting.pop(place, None)
        self._signed_in[place.key] = place
        self._count()

    def refuse(self, code: str) -> None:
        """Count a connection that has not signed in and never will, with the SQLSTATE."""
        self.runtime.postgres_counts.refused[code] += 1

    def remove(self, place: Place) -> None:
        self._waiting.pop(place, None)
        self._signed_in.pop(place.key, None)
        self._count()

    def _count(self) -> None:
        counts = self.runtime.postgres_counts
        counts.waiting, counts.signed_in = len(self._waiting), len(self._signed_in)

    def cancel(self, key: tuple[int, int]) -> None:
        """Cancel the statement of the connection with this key, if there is one."""
        place = self._signed_in.get(key)
        if place is not None:
            place.cancel()

    def end_all(self) -> None:
        for place in [*self._waiting, *self._signed_in.values()]:
            place.end()
