"""The page of SQL over results, in a browser."""

from __future__ import annotations

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.support.console.shop import Shop
from tests.support.console.visits import Visits, assert_sound
from tests.support.service.served import Served


def run(page: Page, sql: str) -> None:
    page.get_by_label("Statement").fill(sql)
    page.keyboard.press("Control+Enter")


def test_an_answer_tells_its_epochs_and_stays_in_the_history(visits: Visits) -> None:
    visits.expect("status of 422")
    page = visits.open("/sql")
    run(page, "SELECT name, COUNT(*) AS n FROM items WHERE name = 'bolt' GROUP BY name")
    expect(page.get_by_role("status")).to_contain_text("1 row. items: epoch")
    rows = page.locator("#rows tbody tr")
    expect(rows).to_have_count(1)
    expect(rows.first).to_have_text("bolt1")
    assert_sound(page, "sql-answer")
    run(page, "SELECT nmae FROM items")
    expect(page.get_by_role("alert")).to_contain_text('"nmae" not found')
    expect(page.get_by_label("Statement")).to_have_attribute("aria-invalid", "true")
    page.reload()
    page.get_by_role("button", name="WHERE name = 'bolt'").click()
    expect(page.get_by_label("Statement")).to_have_value(
        "SELECT name, COUNT(*) AS n FROM items WHERE name = 'bolt' GROUP BY name"
    )
    page.get_by_role("button", name="Forget").click()
    expect(page.get_by_text("No statements yet.")).to_be_visible()


@pytest.mark.slow
def test_names_are_completed_while_the_user_types(visits: Visits) -> None:
    page = visits.open("/sql")
    statement = page.get_by_label("Statement")
    statement.fill("")
    statement.press_sequentially("SELECT na")
    completions = page.get_by_role("group", name="Completions")
    completions.get_by_role("button", name="name", exact=True).click()
    statement.press_sequentially(" FROM ite")
    page.keyboard.press("Control+Space")
    expect(statement).to_have_value("SELECT name FROM items")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_role("status")).to_contain_text("rows. items: epoch")


@pytest.mark.slow
def test_values_are_text_whatever_they_look_like(visits: Visits) -> None:
    page = visits.open("/sql")
    run(page, "SELECT '<img src=x onerror=alert(1)>' AS \"<b>\", NULL AS none, [1, 2] AS list")
    row = page.locator("#rows tbody tr")
    expect(row).to_contain_text("<img src=x onerror=alert(1)>")
    expect(row).to_contain_text("NULL")
    expect(page.locator("#rows thead")).to_contain_text("<b>")


@pytest.mark.slow
def test_an_answer_can_be_downloaded(visits: Visits) -> None:
    page = visits.open("/sql")
    run(page, "SELECT name FROM items WHERE name = 'bolt'")
    expect(page.locator("#rows tbody tr")).to_have_count(1)
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV").click()
    path = download.value.path()
    assert download.value.suggested_filename == "answer.csv"
    assert path.read_text().split() == ["name", "bolt"]


@pytest.mark.slow
def test_a_viewer_may_ask(guarded_visits: tuple[Visits, dict[str, str]]) -> None:
    visits, tokens = guarded_visits
    page = visits.open("/sql", token=tokens["viewer"])
    run(page, "SELECT 1 AS one")
    expect(page.locator("#rows tbody tr")).to_have_text("1")


def test_the_page_names_tables_with_their_columns(shop: tuple[Served, Shop]) -> None:
    client: httpx.Client = shop[0].client()
    text = client.get("/sql").text
    assert "<code>items</code>" in text
    assert "<dt><code>name</code></dt><dd>STRING</dd>" in text
