"""Problems of what a reader of a table refuses: an epoch, changes, a group."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from jobs.reading.difference import DifferenceTooLarge
from jobs.reading.files import NoTable
from jobs.reading.group import UnknownGroup
from jobs.reading.history import EpochUnknown, HistoryGone, find_complete_since
from jobs.reading.version import at_newest
from schemas.directory.quarantine import UnknownMessage
from schemas.types.json_types import JsonObject
from service.live.recent_changes import END_OF_EPOCH
from service.live.results_index import make_no_epoch_problem
from service.live.table import LiveTable
from service.problems import Problem


@contextmanager
def raise_problems() -> Iterator[None]:
    """Turn what a reader refuses into the Problem of a response."""
    try:
        yield
    except NoTable:
        raise make_no_epoch_problem() from None
    except UnknownMessage as error:
        raise Problem("not-found", str(error)) from None
    except UnknownGroup as error:
        raise Problem("group-unknown", str(error)) from None
    except DifferenceTooLarge as error:
        raise Problem("difference-too-large", str(error)) from None
    except EpochUnknown as error:
        raise Problem("epoch-unknown", str(error), newest=error.newest) from None
    except HistoryGone as error:
        extensions: JsonObject = {"oldest": error.oldest}
        if error.table_tag:
            extensions["oldest_id"] = f"{error.oldest}:{END_OF_EPOCH}:{error.table_tag}"
        raise Problem("history-gone", str(error), **extensions) from None


def require_same_table(wanted: str, found: str) -> None:
    """Raise a Problem if a table has been replaced by another one; both are tags."""
    if wanted != found:
        detail = "the table was dropped and made anew; read its results, then what follows them"
        raise Problem("history-gone", detail)


def find_oldest_epoch(live_table: LiveTable) -> int:
    """Return the oldest epoch whose results are available."""
    with raise_problems():
        return at_newest(
            live_table.paths.table, lambda table: find_complete_since(table, 0, results=True)
        )
