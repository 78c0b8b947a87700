"""History: how far back a job's changelog is complete, and the problems if it is not.

Retention removes whole epochs from the old end. The remaining changelog must be complete: one with
a gap would fold to results that never existed.
"""

from __future__ import annotations

from jobs.table.version import TableVersion
from service.live.recent_changes import END_OF_EPOCH
from service.live.results_index import make_no_epoch_problem
from service.problems import Problem


def list_complete_epochs(
    table: TableVersion, epoch: int, *, results: bool = False
) -> list[tuple[int, int]]:
    """Return the later epochs with their numbers of changelog rows.

    Raise a Problem with the oldest available epoch if any of them is missing. With `results`, the
    changelog must also contain all changes: groups may expire without one.
    """
    rows = table.epochs()
    if not rows:
        raise make_no_epoch_problem()
    oldest = rows[0].epoch
    require_known_epoch(epoch, rows[-1].epoch)
    gap = table.find_gap(rows, epoch, results=results)
    if gap is not None:
        make_problem = make_restarted_problem if gap.regrouped else make_gone_problem
        raise make_problem(table, epoch, gap.epoch)
    # Only the job's start has no epochs before it.
    if epoch < oldest and not (epoch == -1 and rows[0].kind == "start"):
        raise make_gone_problem(table, epoch, oldest)
    return [(row.epoch, row.counts.changelog_rows) for row in rows if row.epoch > epoch]


def require_known_epoch(epoch: int, newest: int) -> None:
    """Raise a Problem for an epoch after the newest one."""
    if epoch > newest:
        detail = f"there is no epoch {epoch} yet; the newest is {newest}"
        raise Problem("epoch-unknown", 404, detail, newest=newest)


def find_complete_since(table: TableVersion, epoch: int, *, results: bool = False) -> int:
    """Return the epoch, or the oldest later one after which `list_complete_epochs` misses none."""
    try:
        list_complete_epochs(table, epoch, results=results)
    except Problem as problem:
        oldest = problem.extensions.get("oldest")
        if oldest is None:
            raise
        return int(oldest)
    return epoch


def make_restarted_problem(table: TableVersion, epoch: int, at: int) -> Problem:
    """Return the problem that other group columns have started a new history."""
    problem = make_gone_problem(table, epoch, at)
    problem.detail = (
        f"the query has other group columns since epoch {at}, the oldest available epoch"
    )
    return problem


def make_gone_problem(table: TableVersion, epoch: int, oldest: int) -> Problem:
    """Return the problem that retention has removed the changes after an epoch."""
    return Problem(
        "history-gone",
        410,
        f"the history after epoch {epoch} was removed; the oldest available epoch is {oldest}",
        oldest=oldest,
        oldest_id=f"{oldest}:{END_OF_EPOCH}:{table.tag}",
    )


def require_same_table(wanted: str, found: str) -> None:
    """Raise a Problem if a table has been replaced by another one; both are tags."""
    if wanted != found:
        detail = "the table was dropped and made anew; read its results, then what follows them"
        raise Problem("history-gone", 410, detail)
