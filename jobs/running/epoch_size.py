"""How many records an epoch reads: fewer after one that did not fit, or could not be read.

    range ──a worker dies──► its first half, then the rest ──► ... ──► one record ──► the job stops
            or reads nothing

A message that ends the worker that reads it, or takes the client too long to unpack, would do so at
each start. Halves find it in some twenty attempts, and commit all that is before it.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence

from jobs.edge.kafka.offset_ranges import (
    OffsetRange,
    count_planned_records,
    cut_ends,
    halve_ends,
    ranges_between,
)
from jobs.edge.kafka.range_consumer import RangeTimedOut
from jobs.edge.spark.spark_failure import WorkerLost
from jobs.running.outcome import InputRefused
from schemas.limits import MESSAGE_ATTEMPTS_MAX
from schemas.table.epoch import EpochRow, Offsets

log = logging.getLogger(__name__)


class PoisonMessage(InputRefused):
    """No attempt gets past one message; the text names it, and how to go on."""


def run_in_halves(
    starts: Callable[[], Offsets],
    ends: Offsets,
    run: Callable[[Offsets], EpochRow],
    require_brokers: Callable[[], object] = lambda: None,
) -> EpochRow:
    """Run epochs up to `ends`, and halves of what cannot be read; return the last row.

    Raises PoisonMessage if MESSAGE_ATTEMPTS_MAX attempts at one record lost a worker, or got
    nothing from brokers that answer; `require_brokers` raises if they do not.
    """
    for _ in range(MESSAGE_ATTEMPTS_MAX):
        try:
            return run(ends)
        except (WorkerLost, RangeTimedOut) as failed:
            cause = failed
        if isinstance(cause, RangeTimedOut):
            require_brokers()
        planned = ranges_between(starts(), ends)
        if not planned:
            raise cause
        log.warning("cannot read %s: %s", ", ".join(map(str, planned)), cause)
        half = halve_ends(starts(), ends)
        if half is not None:
            run_in_halves(starts, half, run, require_brokers)
            return run_in_halves(starts, ends, run, require_brokers)
    (only,) = planned
    raise PoisonMessage(
        f"{MESSAGE_ATTEMPTS_MAX} attempts failed at one message, topic {only.topic}, partition "
        f"{only.partition}, offset {only.start}, or at another of its batch ({cause}); give the "
        "job more memory than the unpacked batch has, or skip the message, which loses its rows: "
        f"retally offsets JOB --set {only.topic}/{only.partition}={only.end}"
    ) from cause


class EpochSize:
    """The most records of the next epoch."""

    def __init__(self) -> None:
        self._records_max = sys.maxsize

    def cut(self, starts: Offsets, ends: Offsets) -> Offsets:
        """Return `ends`, or offsets before them if these are too many records for one epoch."""
        return cut_ends(starts, ends, self._records_max)

    def halve(self, planned: Sequence[OffsetRange]) -> bool:
        """Read half of these records next time; return False if they are one record only."""
        records = count_planned_records(planned)
        if records == 1:
            return False
        self._records_max = records // 2
        log.info("%d records are too many for one epoch; reading half of them", records)
        return True

    def raise_slowly(self) -> None:
        """Read more records next time: later ones may be smaller.

        The step is small, because a failed attempt costs a whole epoch.
        """
        self._records_max += self._records_max // 8 + 1
