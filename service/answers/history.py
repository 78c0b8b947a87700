"""History: how far back a job's changelog goes, and what is told when it does not reach.

Retention removes whole epochs from the old end. What is left must be complete: a changelog with a
hole would fold to something that never was.
"""

from __future__ import annotations

from service.live.recent_changes import WHOLE
from service.problems import Problem
from service.table.job_table import Table


def complete_after(table: Table, epoch: int, *, results: bool = False) -> list[tuple[int, int]]:
    """The epochs after one, each with its number of changelog rows; all of them are there, or it
    is a Problem that names the oldest epoch to go back to. With `results` the changelog must also
    tell all that happened: groups that expired without a word are not in it."""
    rows = table.epochs()
    if not rows:
        raise Problem("job-has-no-table", 409, "the job has no epoch yet")
    oldest, newest = rows[0].epoch, rows[-1].epoch
    if epoch > newest:
        raise Problem(
            "epoch-unknown", 404, f"there is no epoch {epoch} yet; the newest is {newest}",
            newest=newest,
        )  # fmt: skip
    counts = table.changelog_counts(epoch)
    later: list[tuple[int, int]] = []
    for row in reversed(rows):
        if row.epoch <= epoch:
            break
        expected = int(row.counters.get("changelog_rows", 0))
        if counts.get(row.epoch, 0) != expected:
            raise gone(epoch, row.epoch)
        if row.begins:
            raise begun(epoch, row.epoch)
        if results and row.counters.get("expired_silently"):
            raise gone(epoch, row.epoch)
        later.append((row.epoch, expected))
    # Before the first epoch that is known there was nothing only where that is the job's start.
    if epoch < oldest and not (epoch == -1 and rows[0].kind == "start"):
        raise gone(epoch, oldest)
    return later[::-1]


def begun(epoch: int, at: int) -> Problem:
    """Nothing leads from the results of before to those of now."""
    problem = gone(epoch, at)
    problem.detail = (
        f"the query has other group columns since epoch {at}; it is the oldest epoch to go back to"
    )
    return problem


def gone(epoch: int, oldest: int) -> Problem:
    return Problem(
        "history-gone",
        410,
        f"the history after epoch {epoch} is gone; the oldest epoch to go back to is {oldest}",
        oldest=oldest,
        oldest_id=f"{oldest}:{WHOLE}",
    )
