"""Alignment groups: a small file a job, in which it tells the group how far its sources are.

    <data>/alignment/<group>/<job>.json    {"at": ms, "watermarks": [..]}

Each job writes its own file and reads the others'. A job that has not told for a while has ended or
hangs, and holds nobody back: whoever comes back is behind, and the others wait for it again.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from schemas.limits import ALIGNMENT_SILENCE_EVERIES, ALIGNMENT_SILENCE_MS_MIN


class _Told(msgspec.Struct):
    at: int
    watermarks: list[int]


_decode = msgspec.json.Decoder(_Told).decode


class AlignmentGroup:
    """One job's view of its group."""

    def __init__(self, data: Path, group: str, job: str, every_ms: int) -> None:
        self._directory = data / "alignment" / group
        self._mine = self._directory / f"{job}.json"
        self._every_ms = every_ms
        self._silence_ms = max(ALIGNMENT_SILENCE_MS_MIN, ALIGNMENT_SILENCE_EVERIES * every_ms)
        self._told: tuple[int, list[int]] = (-(1 << 62), [])

    def report(self, watermarks: list[int], now: int) -> None:
        """Tell the others, when there is news or it is time to be heard of again."""
        at, before = self._told
        if watermarks == before and now - at < self._every_ms:
            return
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = self._mine.with_suffix(".new")
        fresh.write_bytes(msgspec.json.encode(_Told(now, watermarks)))
        fresh.replace(self._mine)
        self._told = (now, watermarks)

    def others(self, now: int) -> list[int]:
        """The watermarks that the other jobs have told lately."""
        found: list[int] = []
        for path in self._directory.glob("*.json"):
            if path == self._mine:
                continue
            try:
                told = _decode(path.read_bytes())
            except (FileNotFoundError, msgspec.DecodeError):  # it is ending, or not ours
                continue
            if now - told.at <= self._silence_ms:
                found += told.watermarks
        return found

    def leave(self) -> None:
        """The job ends: it holds nobody back from now on."""
        self._mine.unlink(missing_ok=True)
