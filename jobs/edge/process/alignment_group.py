"""Report a job's watermarks to its alignment group, and read those of the other jobs.

    <data>/alignment/<group>/<job>.json    {"at": ms, "watermarks": [..]}

Each job writes its own file and reads the others'. A job that has not written for a while has ended
or hangs, so the others no longer wait for it. When it comes back it is behind, and they wait again.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from schemas.directory.documents import read_document, write_document
from schemas.limits import ALIGNMENT_SILENCE_MS_MIN, ALIGNMENT_SILENCE_ROUNDS
from schemas.spec.job import JobSpec


class _Report(msgspec.Struct, frozen=True):
    at: int
    watermarks: list[int]


class AlignmentGroup:
    """One job's view of its group."""

    def __init__(self, data: Path, group: str, job: str, every_ms: int) -> None:
        self._directory = data / "alignment" / group
        self._own = self._directory / f"{job}.json"
        self._every_ms = every_ms
        self._silence_ms = max(ALIGNMENT_SILENCE_MS_MIN, ALIGNMENT_SILENCE_ROUNDS * every_ms)
        self._reported = _Report(-(1 << 62), [])

    def report(self, watermarks: list[int], now: int) -> None:
        """Write the job's watermarks, if they have changed or the last report is old."""
        last = self._reported
        if watermarks == last.watermarks and now - last.at < self._every_ms:
            return
        self._reported = _Report(now, watermarks)
        write_document(self._own, self._reported)

    def others(self, now: int) -> list[int]:
        """Return the watermarks that the other jobs have reported recently."""
        found: list[int] = []
        for path in self._directory.glob("*.json"):
            if path == self._own:
                continue
            report = read_document(path, _Report)  # none if the job is ending, or not ours
            if report is not None and now - report.at <= self._silence_ms:
                found += report.watermarks
        return found

    def leave(self) -> None:
        """Remove the job's report, so that the others no longer wait for it."""
        self._own.unlink(missing_ok=True)


def join_groups(data: Path, spec: JobSpec) -> dict[str, AlignmentGroup]:
    """Return the alignment groups of a job's topics, by name."""
    aligned = [each.align for each in spec.strategies.values() if each.align is not None]
    every = {
        name: min(each.every_ms for each in aligned if each.group == name)
        for name in {each.group for each in aligned}
    }
    return {name: AlignmentGroup(data, name, spec.name, each) for name, each in every.items()}
