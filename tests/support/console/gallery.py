"""Screenshots of all pages at three widths, light and dark: `make pictures`.

python -m tests.support.console.gallery [DIR] [PART ...]    pages whose name has a PART
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Literal

from playwright.sync_api import sync_playwright

from schemas.types.moments import now_ms
from tests.support.console.browsers import launch
from tests.support.console.shop import BROKEN, BROKEN_BY, LATER_MS, failed, serve_shop
from tests.support.console.viewed import put_viewed
from tests.support.console.visits import Visits

WIDTHS = (390, 768, 1440)
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
PAGES = {
    "jobs": "/",
    "job": "/jobs/items",
    "retried": "/jobs/retried",
    "failed": f"/jobs/{BROKEN}",
    "results": "/jobs/items/results",
    "past": "/jobs/items/results?as_of=epoch:30&where=total%3E%3D2&order=-top",
    "diff": "/jobs/items/diff?from=40",
    "group": "/jobs/items/results/bolt",
    "changes": "/jobs/items/changes",
    "quarantine": "/jobs/items/quarantine",
    "message": "/jobs/items/quarantine/60-t-0-600",
    "activity": "/jobs/items/activity",
    "audit": "/jobs/items/activity/audit-different",
    "spec": "/jobs/items/spec",
    "new": "/new",
    "topics": "/topics",
    "sql": "/sql",
    "rest": "/rest",
    "health": "/health",
    "help": "/help",
    "document": "/docs/time.md",
    "audit-log": "/audit-log",
    "viewed": "/jobs/viewed",
    "view-results": "/jobs/viewed/views/most/results",
    "view-changes": "/jobs/viewed/views/most/changes",
    "view-diff": "/jobs/viewed/views/most/diff?from=1",
    "view-group": "/jobs/viewed/views/most/results/bolt",
    "not-found": "/jobs/items/results/no-such-group",
}
_SETTLE_MS = 1_000  # for streams and previews


def take_pictures(visits: Visits, home: Path, names: Sequence[str]) -> Iterator[Path]:
    """Keep a screenshot of each page, and return its file."""
    for name, width, scheme in product(names, WIDTHS, SCHEMES):
        page = visits.open(PAGES[name], scheme=scheme, width=width)
        page.wait_for_timeout(_SETTLE_MS)
        path = home / f"{name}-{width}-{scheme}.png"
        page.screenshot(path=path, full_page=True)
        page.context.close()
        visits.contexts.clear()
        yield path


def main(arguments: Sequence[str]) -> int:
    home = Path(arguments[0] if arguments else "build/pictures")
    parts = arguments[1:] or [""]
    names = [name for name in PAGES if any(part in name for part in parts)]
    home.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as data,
        sync_playwright() as playwright,
        ExitStack() as stack,
    ):
        later = now_ms() + LATER_MS
        wrong = {"failure": "failed", "failures": 3, "retry_at": later}
        failed(Path(data), "retried", reason="the brokers do not answer", **wrong)
        failed(Path(data), BROKEN, reason=BROKEN_BY, failure="source-changed", failures=1)
        served, _ = stack.enter_context(serve_shop(Path(data)))
        put_viewed(served)
        browser = launch(playwright)
        visits = Visits(browser, served)
        visits.expect("status of 404")
        taken = list(take_pictures(visits, home, names))
        visits.close()
        browser.close()
    print(f"pictures: {len(taken)} in {home}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
