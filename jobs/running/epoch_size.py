"""How many records an epoch reads: fewer after an epoch whose rows did not fit in memory."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence

from jobs.edge.kafka.offset_ranges import OffsetRange, count_planned_records, cut_ends
from schemas.table.epoch import Offsets

log = logging.getLogger(__name__)


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
