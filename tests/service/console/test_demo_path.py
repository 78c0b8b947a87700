"""The product's first minutes: from the address that the demo prints to why a MAX went down.

With PICTURES=DIR the pages on the way are kept as the pictures of the README (docs/pictures).
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.console.visits import Visits
from tests.support.service.served import CHECKOUT

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(900)]

CLICKS_MAX = 5
SECONDS_MAX = 180.0
_ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+")
_PICTURES = os.environ.get("PICTURES")


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Of a running demo's service; the demo ends exact, and leaves nothing behind."""
    demo = subprocess.Popen(
        [sys.executable, "-m", "jobs.cli.main", "demo", "--data", str(tmp_path / "data")],
        stdout=subprocess.PIPE,
        text=True,
        cwd=CHECKOUT,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert demo.stdout is not None
    try:
        said = []
        for line in demo.stdout:
            said.append(line)
            if "every job has an epoch" in line:
                break
        found = _ADDRESS.search("".join(said))
        assert found is not None, "".join(said)
        family = psutil.Process(demo.pid).children(recursive=True)
        yield found[0]
    finally:
        demo.send_signal(signal.SIGINT)
        output, _ = demo.communicate(timeout=100)
    assert demo.returncode == 0, output
    exact = re.findall(r"^exact: \d+ (groups|warehouses) equal", output, re.MULTILINE)
    assert exact == ["groups", "warehouses"], output
    assert psutil.wait_procs(family, timeout=20)[1] == []


def test_five_clicks_and_three_minutes_show_why_a_max_went_down(
    browser: Browser, address: str
) -> None:
    visits = Visits(browser, _Demo(address))  # type: ignore[arg-type]
    page = visits.open("/")
    page.set_viewport_size({"width": 1200, "height": 860})
    began, clicks = time.monotonic(), 0
    page.get_by_role("region", name="Jobs", exact=True).get_by_role("link", name="items").click()
    clicks += 1
    page.get_by_role("link", name="Changes").click()
    clicks += 1
    page.get_by_label("Type of change").select_option("extreme")
    clicks += 2  # the list, and the choice
    fell = page.locator("tr.after", has=page.locator("td.extreme.down")).first
    expect(fell).to_be_visible(timeout=90_000)
    fell.get_by_role("link").click()
    clicks += 1
    why = page.get_by_role("region", name="Why the value changed")
    expect(why).to_contain_text(re.compile(r"top decreased from \d+ to \d+ in epoch \d+"))
    expect(why).to_contain_text("shop.product/")  # where that was read
    _picture(page, "why")
    assert clicks <= CLICKS_MAX
    assert time.monotonic() - began < SECONDS_MAX

    page.get_by_role("navigation").get_by_role("link", name="Results").click()
    expect(page.get_by_role("region", name="Results").locator("tbody tr").first).to_be_visible()
    _picture(page, "results")
    page.get_by_role("link", name="Overview").click()
    expect(page.locator("#lag .plot")).to_be_visible(timeout=30_000)
    _picture(page, "job")
    page.goto("/")
    _picture(page, "jobs")
    visits.close()


class _Demo:
    """What visits need to know of a service."""

    def __init__(self, address: str) -> None:
        self.address = address


def _picture(page: Page, name: str) -> None:
    if _PICTURES:
        Path(_PICTURES).mkdir(parents=True, exist_ok=True)
        page.wait_for_timeout(300)
        page.screenshot(path=Path(_PICTURES) / f"{name}.png")
