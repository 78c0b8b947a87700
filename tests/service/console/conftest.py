"""A browser, a service with jobs to look at, and a test's visits to it."""

from __future__ import annotations

from asyncio import AbstractEventLoop, events, get_running_loop
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from service.serving import create_token
from tests.support.console.browsers import find_chromium, launch
from tests.support.console.shop import BROKEN, BROKEN_BY, Shop, failed, put, serve_shop
from tests.support.console.visits import Visits
from tests.support.service.served import Served

# A busy machine takes its time; what is wrong stays wrong for so long.
expect.set_options(timeout=15_000)


@pytest.fixture(scope="session")
def chromium() -> Iterator[tuple[Browser, AbstractEventLoop]]:
    """One a worker, with the event loop that Playwright's calls run."""
    if find_chromium() is None:
        pytest.skip("NOT CHECKED IN A BROWSER: there is no Chromium; run make setup-browser")
    with sync_playwright() as playwright:
        running, loop = launch(playwright), get_running_loop()
        events._set_running_loop(None)
        yield running, loop
        events._set_running_loop(loop)
        running.close()


@pytest.fixture(scope="module")
def browser(chromium: tuple[Browser, AbstractEventLoop]) -> Iterator[Browser]:
    """The browser, for a module: in the others tests may run event loops of their own."""
    running, loop = chromium
    events._set_running_loop(loop)
    yield running
    events._set_running_loop(None)


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Shop]]:
    """A service without tokens, and the table of its job `items`, with a story of two minutes."""
    with serve_shop(tmp_path_factory.mktemp("shop")) as found:
        yield found


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, dict[str, str]]]:
    """A service with tokens, and a token for each role."""
    data = tmp_path_factory.mktemp("guarded")
    tokens = {
        role: create_token(data, f"a-{role}", role) for role in ("viewer", "operator", "admin")
    }
    table = Shop(data, epochs_until_now=3)
    table.write({"bolt": (7,)}, {"bolt": (7, 9)})
    with Served.start(data, token=tokens["admin"]) as served:
        put(served, table)
        yield served, tokens


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service without tokens whose jobs are the tests' own, by names that no other takes."""
    data = tmp_path_factory.mktemp("workshop")
    failed(data, BROKEN, reason=BROKEN_BY, failure="source-changed", failures=1)
    with Served.start(data) as served:
        yield served


@pytest.fixture
def workshop_visits(browser: Browser, workshop: Served) -> Iterator[Visits]:
    """To the service where tests make jobs and change them."""
    looking = Visits(browser, workshop)
    yield looking
    looking.close()


@pytest.fixture
def visits(browser: Browser, shop: tuple[Served, Shop]) -> Iterator[Visits]:
    """To the service without tokens."""
    looking = Visits(browser, shop[0])
    yield looking
    looking.close()


@pytest.fixture
def guarded_visits(
    browser: Browser, guarded: tuple[Served, dict[str, str]]
) -> Iterator[tuple[Visits, dict[str, str]]]:
    """To the service with tokens."""
    looking = Visits(browser, guarded[0])
    yield looking, guarded[1]
    looking.close()
