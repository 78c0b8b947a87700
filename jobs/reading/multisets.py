"""Find the files that know a group's multisets over the newest epochs.

    live files       the state: merges keep the newest row of each value
    epochs' files    what each epoch wrote; they stay on disk after a merge, for some time

A reader of both knows the state after each of these epochs, back to the first one whose files were
deleted:

    merged file ── epochs 1 to 32 ──┐┌── 33 to 64 ──┐
    epochs' files           30 31 32 33 ... 64 65 66      known since epoch 32
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from jobs.reading.files import LiveFile
from jobs.reading.parts import MULTISETS
from schemas.limits import EXPLAINED_EPOCHS_MAX
from schemas.table.epoch import RESTART_KINDS, EpochRow
from schemas.table.object_path import TablePath

_WRITES_ALL = ("evolve", "clone")  # kinds of epochs that write the whole state anew


@dataclass(frozen=True, slots=True)
class KnownMultisets:
    """The state of the multisets is known after each epoch from `since` on."""

    since: int
    # Files that are no longer live, by epoch; their rows tell these epochs apart.
    merged: dict[int, tuple[str, ...]]


def find_known_multisets(
    root: TablePath, live: Sequence[LiveFile], rows: Iterable[EpochRow]
) -> KnownMultisets:
    """Return from which epoch on multisets are known; `live` are the live multiset files."""
    names = {file.path for file in live}
    since, found = -1, dict[int, tuple[str, ...]]()
    newest_first = sorted(rows, key=lambda row: row.epoch, reverse=True)
    for count, (row, before) in enumerate(zip_longest(newest_first, newest_first[1:])):
        own = row.files.get(MULTISETS, ())
        dead = [name for name in own if name not in names]
        unnamed = not row.files and row.counts.changelog_rows > 0
        gone = unnamed or count >= EXPLAINED_EPOCHS_MAX
        gone = gone or not all((root / name).exists() for name in dead)
        if dead and not gone:
            found[row.epoch] = tuple(dead)
        if gone or _restarts(row, before):
            since = row.epoch
            if own and not gone and row.kind in _WRITES_ALL:  # no merge hides what they have
                return KnownMultisets(since, found)
            break
    since = _skip_opaque(live, since)
    # Merges may have parted the files of one epoch, so those of `since` itself are read too.
    known = {epoch: names for epoch, names in found.items() if epoch >= since}
    return KnownMultisets(since, known)


def _restarts(row: EpochRow, before: EpochRow | None) -> bool:
    """Return whether an epoch replaces the state; an evolve may have changed other views only."""
    if row.kind == "evolve" and before is not None and before.plan == row.plan:
        return False
    return row.kind in RESTART_KINDS


def _skip_opaque(live: Sequence[LiveFile], since: int) -> int:
    """Return the newest epoch of a merged file that hides earlier states than the known epochs.

    A merged file has epochs from the newest one of the file before it on, perhaps only as values
    that are newer. If all of these epochs are known by their own files, it hides nothing.
    """
    ends = sorted({file.epoch_max for file in live})
    merged = sorted({file.epoch_max for file in live if file.tier}, reverse=True)
    for end in merged:
        before = [each for each in ends if each < end]
        if since >= (before[-1] if before else 1):
            return max(since, end)
    return since
