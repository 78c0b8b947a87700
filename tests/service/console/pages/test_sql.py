"""The page of SQL over results, in a browser."""

from __future__ import annotations

import re
from typing import Literal

import httpx
import pytest
from playwright.sync_api import Locator, Page, expect

from tests.support.console.gallery import SCHEMES, WIDTHS
from tests.support.console.shop import Shop
from tests.support.console.visits import Visits, assert_sound, write_spec
from tests.support.service.served import Served


def editor_of(page: Page) -> Locator:
    return page.get_by_role("textbox", name="Statement")


def run(page: Page, sql: str) -> None:
    write_spec(editor_of(page), sql, "#statement")
    page.keyboard.press("Control+Enter")


def test_an_answer_tells_its_epochs_and_stays_in_the_history(visits: Visits) -> None:
    visits.expect("status of 422")
    page = visits.open("/sql")
    sql = "SELECT name, COUNT(*) AS n FROM items WHERE name = 'bolt' GROUP BY name"
    run(page, sql)
    expect(page.get_by_role("status")).to_contain_text(re.compile(r"1 row in \d.* s. items: epoch"))
    rows = page.locator("#rows tbody tr")
    expect(rows).to_have_count(1)
    expect(rows.first).to_have_text("bolt1")
    expect(page.locator("#chart")).to_be_hidden()  # one row is no chart
    assert_sound(page, "sql-answer")
    run(page, "SELECT nmae FROM items")
    expect(page.get_by_role("alert")).to_contain_text('"nmae" not found')
    expect(page.locator(".cm-lintRange-error")).to_have_text("nmae")
    expect(editor_of(page)).to_have_attribute("aria-invalid", "true")
    page.reload()
    expect(editor_of(page)).to_have_text(sql)  # from the address
    page.get_by_role("button", name="WHERE name = 'bolt'").click()
    expect(page.locator("#statement")).to_have_value(sql)
    page.get_by_role("button", name="Forget").click()
    expect(page.get_by_text("No statements yet.")).to_be_visible()


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_two_columns_of_an_answer_are_a_chart(
    visits: Visits, width: int, scheme: Literal["light", "dark"]
) -> None:
    page = visits.open("/sql", width=width, scheme=scheme)
    run(page, "SELECT name, total, -top AS low FROM items WHERE name IS NOT NULL ORDER BY name")
    chart = page.get_by_role("img", name="total by name: 3 rows from <b>&amp; to nut")
    expect(chart.locator("rect")).to_have_count(3)
    tall = "all => all.map(each => each.getBBox().height)"
    heights = chart.locator("rect").evaluate_all(tall)
    assert max(heights) == pytest.approx(120) and min(heights) > 0
    page.get_by_label("Chart of").select_option("low")
    expect(page.get_by_role("img", name="low by name")).to_have_attribute(
        "aria-label", re.compile("between -[0-9]+ and 0$")
    )
    assert [each.get_attribute("class") for each in page.locator("#rows th").all()] == [
        None,
        "num",
        "num",
    ]
    assert_sound(page, f"sql-chart-{width}-{scheme}")
    run(page, "SELECT range AS n, n * n AS squared FROM range(200)")
    expect(
        page.get_by_role("img", name="n by squared: 200 rows").locator("path.line")
    ).to_be_visible()


@pytest.mark.slow
def test_names_are_completed_while_the_user_types(visits: Visits) -> None:
    page = visits.open("/sql")
    statement, area = editor_of(page), page.locator("#statement")
    choices = page.get_by_role("listbox").get_by_role("option")
    write_spec(statement, "SELECT  FROM items", "#statement")
    statement.press("Home")
    for _ in "SELECT ":
        page.keyboard.press("ArrowRight")
    page.keyboard.type("na")
    expect(choices.first).to_have_text("nameSTRING")
    page.wait_for_timeout(200)  # a choice that has just appeared is not taken by accident
    page.keyboard.press("Enter")
    expect(area).to_have_value("SELECT name FROM items")
    write_spec(statement, "SELECT name FROM ", "#statement")
    statement.press("Control+End")
    page.keyboard.type("ite")
    expect(choices).to_have_text(["items"])  # a table, and nothing else
    page.wait_for_timeout(200)
    page.keyboard.press("Enter")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_role("status")).to_contain_text("items: epoch")
    assert area.input_value() == "SELECT name FROM items"


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
