"""Shortcuts, the list of pages and jobs, and what a browser prefers: theme, time zone."""

from __future__ import annotations

import re
from urllib.parse import unquote

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.support.console.gallery import WIDTHS
from tests.support.console.shop import Shop
from tests.support.console.visits import Visits, assert_sound
from tests.support.service.served import Served


def background(page: Page) -> str:
    return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_a_theme_is_kept_and_goes_before_the_systems(visits: Visits, width: int) -> None:
    page = visits.open("/sql", scheme="light", width=width)
    before = background(page)
    page.get_by_label("Theme").select_option("dark")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    assert background(page) != before
    page.goto("/jobs/items")
    assert_sound(page, f"chosen-dark-{width}")
    page.get_by_label("Theme").select_option("system")
    expect(page.locator("html[data-theme]")).to_have_count(0)
    assert background(page) == before


@pytest.mark.slow
def test_times_are_those_of_the_chosen_zone(visits: Visits) -> None:
    context = visits.browser.new_context(base_url=visits.served.address, timezone_id="Asia/Tokyo")
    visits.contexts.append(context)
    page = context.new_page()
    page.goto("/jobs/items/changes")
    page.get_by_label("Times").select_option("Asia/Tokyo")
    time = page.locator("tr.epoch time").first
    expect(time).to_have_text(re.compile(r"JST$"))
    page.goto("/jobs/items/results/bolt")
    time = page.locator("#history time").first
    exact, shown = time.get_attribute("datetime"), time.text_content()
    local = "(exact) => new Date(Date.parse(exact) + 9 * 3_600_000).toISOString().slice(0, 19)"
    assert shown == f"{page.evaluate(local, exact).replace('T', ' ')} JST"
    page.goto("/jobs/items/results")
    written = page.evaluate(local, exact).removesuffix(":00")  # as the browser writes it
    page.get_by_label("or time JST").fill(written)
    page.keyboard.press("Enter")
    page.wait_for_url(lambda url: unquote(url).endswith(f"as_of=time:{(exact or '')[:19]}Z"))
    expect(page.locator("#moment")).to_contain_text("as of epoch")


@pytest.mark.parametrize("zone", ["Nowhere/Nothing", "../../etc/passwd", "Europe", "x" * 300])
def test_a_zone_that_is_none_is_utc(shop: tuple[Served, Shop], zone: str) -> None:
    client: httpx.Client = shop[0].client()
    page = client.get("/", headers={"Cookie": f"retally-zone={zone}; retally-theme=<i>"})
    assert page.status_code == 200
    assert 'data-zone="UTC" data-zone-name="UTC">' in page.text


@pytest.mark.slow
def test_keys_lead_to_pages_and_jobs(visits: Visits) -> None:
    page = visits.open("/")
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Go to")
    expect(dialog.get_by_role("link", name="items")).to_be_visible()
    assert_sound(page, "palette")
    page.keyboard.type("ite")
    expect(dialog.get_by_role("link")).to_have_count(1)
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs/items")
    page.keyboard.type("gs")
    page.wait_for_url("**/sql")
    # Keys that write are none of the page's.
    page.get_by_role("textbox", name="Statement").press("End")
    page.keyboard.type("gj?")
    expect(page.locator("#statement")).to_have_value(re.compile(r"gj\?$"))
    page.goto("/jobs/items/changes")
    page.keyboard.press("/")
    expect(page.get_by_label("Text in a row")).to_be_focused()
    page.get_by_label("Shortcuts").select_option("off")
    expect(page.locator("html")).to_have_attribute("data-keys", "off")
    page.locator("body").press("?")
    expect(dialog).to_be_hidden()
    page.get_by_role("button", name="Go to").click()
    expect(dialog).to_be_visible()
