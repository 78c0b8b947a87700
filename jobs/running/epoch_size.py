"""How many records an epoch reads: fewer after one that did not fit, or lost a worker.

    range ──a worker dies──► its first half, then the rest ──► ... ──► one record ──► the job stops

A message that ends the worker that reads it would end each later one too. Halves find it in some
twenty deaths, and commit all that is before it.
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
from jobs.edge.spark.spark_failure import WorkerLost
from jobs.running.outcome import InputRefused
from schemas.limits import WORKER_DEATHS_MAX
from schemas.table.epoch import EpochRow, Offsets

log = logging.getLogger(__name__)


class MessageKills(InputRefused):
    """A worker dies of one message, each time; the message names it, and how to go on."""


def run_in_halves(
    starts: Callable[[], Offsets], ends: Offsets, run: Callable[[Offsets], EpochRow]
) -> EpochRow:
    """Run epochs up to `ends`, and halves of what a worker dies of; return the last row.

    Raises MessageKills if WORKER_DEATHS_MAX workers died of one record.
    """
    for _ in range(WORKER_DEATHS_MAX):
        try:
            return run(ends)
        except WorkerLost as lost:
            cause = lost
        planned = ranges_between(starts(), ends)
        if not planned:
            raise cause
        log.warning("a worker died of %s: %s", ", ".join(map(str, planned)), cause)
        half = halve_ends(starts(), ends)
        if half is not None:
            run_in_halves(starts, half, run)
            return run_in_halves(starts, ends, run)
    (only,) = planned
    raise MessageKills(
        f"{WORKER_DEATHS_MAX} workers died of one message, topic {only.topic}, partition "
        f"{only.partition}, offset {only.start} ({cause}); give the job more memory than the "
        "unpacked message has, or skip it, which loses its rows: retally offsets JOB --set "
        f"{only.topic}/{only.partition}={only.end}"
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
