"""The console in a real browser: what every page has."""

from __future__ import annotations

import re
from datetime import datetime
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import expect

from tests.support.console.gallery import WIDTHS
from tests.support.console.visits import Visits, assert_sound, assert_sound_everywhere
from tests.support.sampling import quick

PAGES = {
    "jobs": "/",
    "job": "/jobs/items",
    "new": "/new",
    "audit-log": "/audit-log",
    "sql": "/sql",
    "health": "/health",
    "help": "/help",
    "document": "/docs/time.md",
    "document-with-pictures": "/docs/console.md",
    "spec": "/jobs/items/spec",
}


@pytest.mark.parametrize("name", quick(PAGES, ["jobs"]))
def test_a_page_is_usable_in_light_and_dark_wide_and_narrow(visits: Visits, name: str) -> None:
    assert_sound_everywhere(visits, PAGES[name], name)


@pytest.mark.slow
def test_the_login_page_is_usable_too(guarded_visits: tuple[Visits, dict[str, str]]) -> None:
    assert_sound_everywhere(guarded_visits[0], "/login", "login")


@pytest.mark.slow
def test_a_token_logs_in_and_out_again(guarded_visits: tuple[Visits, dict[str, str]]) -> None:
    visits, tokens = guarded_visits
    visits.expect("status of 401")
    page = visits.open("/jobs/items")
    page.get_by_label("Token").fill("rt_wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("This token is not valid")
    page.get_by_label("Token").fill(tokens["viewer"])
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="items")).to_be_visible()
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Token")).to_be_visible()
    page.goto("/")
    expect(page.get_by_label("Token")).to_be_visible()


@pytest.mark.slow
def test_whoever_has_a_session_is_led_on_from_the_login(
    guarded_visits: tuple[Visits, dict[str, str]],
) -> None:
    visits, tokens = guarded_visits
    page = visits.open("/login?next=/jobs/items", token=tokens["viewer"])
    expect(page.get_by_role("heading", name="items")).to_be_visible()


def test_the_keyboard_reaches_the_content_first(visits: Visits) -> None:
    page = visits.open("/")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("main")).to_be_focused()


@pytest.mark.slow
def test_a_session_that_ends_leads_to_the_login_and_back(
    guarded_visits: tuple[Visits, dict[str, str]],
) -> None:
    visits, tokens = guarded_visits
    page = visits.open("/jobs/items", token=tokens["viewer"])
    page.context.clear_cookies()
    expect(page.get_by_label("Token")).to_be_visible()
    page.get_by_label("Token").fill(tokens["viewer"])
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="items")).to_be_visible()


@pytest.mark.slow
def test_a_page_with_text_stays_when_its_session_ends(
    guarded_visits: tuple[Visits, dict[str, str]],
) -> None:
    visits, tokens = guarded_visits
    page = visits.open("/jobs/items/spec", token=tokens["admin"])
    expect(page.locator("#verdict")).to_have_attribute("data-valid", "true")  # nothing is under way
    page.context.clear_cookies()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.evaluate(
        """async () => {
          document.getElementById("state").dataset.moving = "";
          const script = document.querySelector("script[type=module]").src;
          await (await import(script.replace("console.js", "live.js"))).refresh();
        }"""
    )
    expect(page.locator("#connection")).to_contain_text("The session has ended")
    page.wait_for_timeout(2_500)  # longer than the interval of a moving job
    assert [urlsplit(url).path for url in asked] == ["/jobs/items/spec", "/login"]
    expect(page).to_have_url(re.compile("/jobs/items/spec$"))


def test_the_charts_have_a_range_with_times_and_a_zero(visits: Visits) -> None:
    page = visits.open("/jobs/items?span=24h")
    rates = page.locator("#rates")
    expect(rates.get_by_role("img", name="over the last 1 d")).to_be_visible()
    expect(rates.locator(".scales span").last).to_have_text("0")
    expect(rates.locator(".ticks text").first).to_have_text(re.compile(r"^\d\d:\d\d$"))
    page.get_by_role("group", name="Range of the charts").get_by_role("link", name="1 h").click()
    page.wait_for_url("**span=1h*")
    page.get_by_role("group", name="Range of the charts").get_by_role("link", name="24 h").click()
    expect(rates.get_by_role("img", name="over the last 1 d")).to_be_visible()


def test_a_part_of_a_chart_is_dragged_to_see_it_alone(visits: Visits) -> None:
    page = visits.open("/jobs/items?span=24h")
    canvas, picture = page.locator("#rates .canvas"), page.locator("#rates [role=img]")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"], box["y"] + 40, steps=5)
    expect(page.locator(".marked")).to_be_visible()
    page.mouse.up()
    expect(picture).to_have_attribute("aria-label", re.compile("in and out from .* to "))
    ends = [parse_qs(urlsplit(page.url).query)[name][0] for name in ("from", "to")]
    first, last = map(datetime.fromisoformat, ends)
    assert 11.9 * 3_600 <= (last - first).total_seconds() <= 12.1 * 3_600
    assert "span" not in page.url
    expect(page.get_by_label("or from")).to_have_value(re.compile(f"^{ends[0][:16]}"))
    page.reload()
    expect(picture).to_have_attribute("aria-label", re.compile("from"))
    assert_sound(page, "zoomed")
    page.go_back()
    expect(picture).to_have_attribute("aria-label", re.compile("over the last 1 d"))
    bars = page.locator("#epochs .canvas")
    newest = int(bars.locator("g[data-at]").last.get_attribute("data-at") or 0)
    box = bars.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"], box["y"] + 40, steps=5)
    page.mouse.up()
    page.wait_for_url("**to=*")
    to = datetime.fromisoformat(parse_qs(urlsplit(page.url).query)["to"][0])
    assert newest <= to.timestamp() * 1_000


def test_a_range_is_written_from_the_keyboard_in_the_zone_of_the_page(visits: Visits) -> None:
    page = visits.open("/jobs/items")
    page.context.add_cookies(
        [{"name": "retally-zone", "value": "Asia/Tokyo", "url": visits.served.address}]
    )
    page.reload()
    page.get_by_label("to JST").fill("2026-01-31T12:00")
    page.get_by_label("or from").fill("2026-01-31T11:30")
    page.keyboard.press("Enter")
    page.wait_for_url("**from=2026-01-31T02:30:00Z&to=2026-01-31T03:00:00Z*")
    expect(page.get_by_label("to JST")).to_have_value(re.compile("^2026-01-31T12:00"))
    expect(page.locator("#epochs")).to_contain_text("single epochs only for the newest 360")
    page.get_by_role("link", name="10 min").click()
    expect(page.locator("#epochs").get_by_role("img")).to_be_visible()


def test_the_rest_page_has_every_route_with_an_example(visits: Visits) -> None:
    page = visits.open("/")
    page.get_by_role("link", name="REST").click()
    route = page.locator("#get-v1-jobs-name-results")
    route.locator("summary").click()
    expect(route).to_contain_text("as_of")
    expect(route.get_by_label("Example of a response")).to_contain_text('"epoch": 41')
    assert_sound(page, "rest")


def test_a_route_that_reads_is_tried_with_its_parameters(visits: Visits) -> None:
    visits.expect("status of 404")
    page = visits.open("/rest#get-v1-jobs-name-results")
    route = page.locator("#get-v1-jobs-name-results")
    route.locator("summary").click()
    route.get_by_label("name", exact=True).fill("items")
    route.get_by_label("where").fill("top>=6\nname!=bolt")
    route.get_by_label("order").fill("-top")
    with page.expect_response("**/v1/jobs/items/results?**") as found:
        route.get_by_role("button", name="Send").click()
    where = parse_qs(urlsplit(found.value.url).query)
    assert where == {"where": ["top>=6", "name!=bolt"], "order": ["-top"]}
    expect(route.get_by_role("status")).to_contain_text(
        re.compile(r"200.* · \d+ ms · application/json · \d+ bytes")
    )
    answer = route.get_by_label("Answer of GET")
    expect(answer).to_contain_text(re.compile(r'"top": ?59\b'))
    expect(answer).not_to_contain_text("bolt")
    assert_sound(page, "rest-tried")
    route.get_by_label("name", exact=True).fill("none")
    page.keyboard.press("Enter")
    expect(answer).to_contain_text("job-unknown")
    route.get_by_label("If-None-Match").fill("→")
    page.keyboard.press("Enter")
    expect(route.get_by_role("alert")).to_contain_text("ISO-8859-1")
    route.get_by_label("If-None-Match").fill("")
    page.evaluate("""() => {
      const whole = window.fetch;
      window.fetch = async () => {
        window.fetch = whole;
        return new Response(new ReadableStream({ pull: (it) => it.error(new TypeError()) }));
      };
    }""")
    route.get_by_role("button", name="Send").click()
    expect(route.get_by_role("status")).to_contain_text(re.compile("200 .*response broke off"))
    stream = page.locator("#get-v1-jobs-name-changes")
    stream.locator("summary").click()
    stream.get_by_label("name", exact=True).fill("items")
    stream.get_by_label("since").fill("58")
    stream.get_by_role("button", name="Send").click()  # it never ends: its first part is shown
    expect(stream.get_by_label("Answer of GET")).to_contain_text("event: change")


@pytest.mark.slow
def test_a_route_that_changes_asks_first_and_only_who_may(
    guarded_visits: tuple[Visits, dict[str, str]],
) -> None:
    visits, tokens = guarded_visits
    page = visits.open("/rest", token=tokens["operator"])
    route = page.locator("#post-v1-jobs-name-savepoints")
    route.locator("summary").click()
    route.get_by_label("name", exact=True).fill("items")
    route.get_by_label("Body of").fill('{"name": "tried"}')
    route.get_by_role("button", name="Send").click()
    dialog = page.get_by_role("dialog", name="Send this request?")
    expect(dialog).to_contain_text("POST /v1/jobs/items/savepoints")
    expect(dialog.get_by_label("Body of the request")).to_have_text('{"name": "tried"}')
    assert_sound(page, "rest-asked")
    dialog.get_by_role("button", name="Cancel").click()
    with visits.served.client() as client:
        assert client.get("/v1/jobs/items/savepoints").json()["savepoints"] == []
        route.get_by_role("button", name="Send").click()
        dialog.get_by_role("button", name="Send request").click()
        expect(route.get_by_role("status")).to_contain_text("201")
        other = page.locator("#delete-v1-jobs-name")
        other.locator("summary").click()
        expect(other).to_contain_text("the role admin is required")
        expect(other.get_by_role("button", name="Send")).to_have_count(0)
        page = visits.open("/rest", token=tokens["admin"])
        dialog = page.get_by_role("dialog", name="Send this request?")
        route = page.locator("#delete-v1-jobs-name-savepoints-savepoint")
        route.locator("summary").click()
        route.get_by_label("name", exact=True).fill("items")
        route.get_by_label("savepoint", exact=True).fill("tried")
        for typed in ("item", "items"):
            route.get_by_role("button", name="Send").click()
            dialog.get_by_label("Type the name, items").fill(typed)
            dialog.get_by_role("button", name="Send request").click()
            if typed == "item":
                expect(dialog).to_be_visible()
                dialog.get_by_role("button", name="Cancel").click()
        expect(route.get_by_role("status")).to_contain_text("204")
        assert client.get("/v1/jobs/items/savepoints").json()["savepoints"] == []


def test_a_job_has_ready_statements_for_other_engines(visits: Visits) -> None:
    page = visits.open("/jobs/items")
    card = page.get_by_role("region", name="Query this table")
    card.get_by_text("Polars Python").click()
    expect(page.get_by_label("Statement for Polars")).to_contain_text('.group_by("name")')


@pytest.mark.slow
def test_the_health_page_names_what_is_wrong(visits: Visits) -> None:
    page = visits.open("/health")
    expect(page.get_by_role("row", name="Brokers of default")).to_contain_text("did not answer")
    expect(page.get_by_role("row", name="Disk")).to_contain_text("free for tables")
    expect(page.get_by_role("row", name="Streams of changes")).to_contain_text("0")


@pytest.mark.slow
def test_a_word_of_a_page_is_explained(visits: Visits) -> None:
    page = visits.open("/jobs/items")
    page.get_by_role("link", name="What is: Watermark?").first.click()
    page.wait_for_url("**/docs/time.md#the-watermark")
    expect(page.get_by_role("heading", name="The watermark", exact=True)).to_be_in_viewport()
    page.get_by_role("link", name="Help", exact=True).click()
    page.get_by_role("link", name="Epoch, in: The table of a job").click()
    page.wait_for_url("**/docs/tables.md#parts")
    expect(page.get_by_role("heading", name="Parts", exact=True)).to_be_in_viewport()


@pytest.mark.parametrize("width", quick(WIDTHS, [WIDTHS[0]]))
def test_what_is_not_there_is_on_the_grid(visits: Visits, width: int) -> None:
    visits.expect("status of 404")
    page = visits.open("/jobs/none", width=width)
    left = "name => document.querySelector(name).getBoundingClientRect().left"
    heading = page.evaluate(left, "main h1")
    assert heading == page.evaluate(left, ".brand" if width > 768 else "footer p")
    assert_sound(page, "not-found")
