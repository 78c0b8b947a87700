"""Stop a job at the limits that its spec sets on bad input, before the epoch is committed."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence

from jobs.edge.tasks.range_report import RangeReport
from jobs.running.outcome import InputRefused
from schemas.limits import BAD_FRACTION_MESSAGES_MIN
from schemas.spec.job import JobSpec


class InputLimits:
    """The limits of one job: on_schema_change, on_truncate, on_error and max_bad_fraction."""

    def __init__(self, spec: JobSpec) -> None:
        self._spec = spec
        self._recent: deque[tuple[int, int]] = deque()  # (read, quarantined) of recent epochs

    def check(self, reports: Sequence[RangeReport]) -> None:
        """Raise InputRefused if the spec says to stop at the input of the next epoch."""
        spec = self._spec
        gone = [report.gone for report in reports if report.gone]
        if gone and spec.on_schema_change == "stop":
            raise InputRefused(
                f"{gone[0]}; the job stops (on_schema_change: stop); correct the source or the "
                "columns of the job, or set on_schema_change: continue"
            )
        truncated = [report.truncated for report in reports if report.truncated]
        if truncated:
            raise InputRefused(truncated[0])
        rejects = [report.first_reject for report in reports if report.first_reject]
        rejects += [refused.first for report in reports for refused in report.refused]
        if rejects and spec.on_error == "fail":
            raise InputRefused(
                f"{rejects[0]}; the job stops (on_error: fail); correct the source, or set "
                "on_error: quarantine"
            )
        read, bad = self._count_recent(reports)
        if read >= BAD_FRACTION_MESSAGES_MIN and bad > spec.max_bad_fraction * read:
            raise InputRefused(
                f"{bad} of the last {read} messages are bad, more than max_bad_fraction "
                f"{spec.max_bad_fraction}; the first: {rejects[0] if rejects else 'earlier'}"
            )

    def _count_recent(self, reports: Sequence[RangeReport]) -> tuple[int, int]:
        """Add an epoch, and count the messages and bad messages of the last epochs.

        These are the fewest epochs that have BAD_FRACTION_MESSAGES_MIN messages. Of several views
        that refuse messages, the one that refuses the most counts.
        """
        recent = self._recent
        by_view = Counter[int]()  # bad messages that the other views take
        for report in reports:
            for refused in report.refused:
                by_view[refused.view] += refused.count
        bad = sum(r.quarantined for r in reports) + max(by_view.values(), default=0)
        recent.append((sum(r.read for r in reports), bad))
        read = sum(read for read, _ in recent)
        while len(recent) > 1 and read - recent[0][0] >= BAD_FRACTION_MESSAGES_MIN:
            read -= recent.popleft()[0]
        return read, sum(bad for _, bad in recent)
