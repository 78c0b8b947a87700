"""The live changelog: every change, its direction, honest about what it does not show."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from schemas.spec.file import load_spec
from tests.support.console.living import PATIENCE_MS, living
from tests.support.console.shop import Shop, put
from tests.support.console.visits import Visits, assert_sound
from tests.support.service.served import Served

pytestmark = pytest.mark.slow

SHOWN_MAX, KEPT_MAX = 300, 2_000  # as in assets/changes.js


def rows(page: Page) -> list[str]:
    """Op and the row of each line, the newest first; -U rows too, which the page may hide."""
    cells = "rows => rows.map(row => [...row.cells].map(cell => cell.textContent).join(' '))"
    lines: list[str] = page.locator("#changes tbody tr:not(.epoch)").evaluate_all(cells)
    return lines


def tally(page: Page, text: str) -> None:
    expect(page.locator("#tally")).to_contain_text(text)


def test_changes_appear_with_what_they_changed(workshop_visits: Visits) -> None:
    own = workshop_visits
    table = living(own, "flowing", {"bolt": (7,)})
    page = own.open("/jobs/flowing/changes")
    tally(page, "1 change shown, 1 received")
    table.write(
        {"bolt": (7, 9), "<b>&amp;": (1,)}, {"bolt": (7,), "<b>&amp;": (1,)}, {"bolt": (7,)}
    )
    tally(page, "5 changes shown, 5 received")
    found = rows(page)
    assert found[0] == "-D <b>&amp; 1 1"
    assert found[1] == "-U bolt 16 9"
    assert found[2].startswith("+U bolt 16 → 7") and "9 → 7" in found[2]
    expect(page.locator("tr.before").first).to_be_hidden()
    page.get_by_label("-U rows").check()
    expect(page.locator("tr.before").first).to_be_visible()
    heading = page.locator("tr.epoch", has_text="Epoch 4")
    expect(heading.locator("time")).to_have_attribute("datetime", re.compile(r"^20\d\d-.*Z$"))
    assert "decreased" in page.locator("tr.after").first.inner_html()
    grown = next(each for each in found[3:] if each.startswith("+U"))
    assert "7 → 16" in grown and "7 → 9" in grown
    assert {"+I <b>&amp; 1 1", "-U bolt 7 7"} <= set(found[3:])
    assert found[-1] == "+I bolt 7 7"
    assert_sound(page, "flowing")


def test_only_what_fits_is_shown_and_the_rest_is_counted(workshop_visits: Visits) -> None:
    own = workshop_visits
    living(own, "sieved", {"bolt": (7, 9), "nut": (1,)}, {"bolt": (7,), "nut": (2,)})
    page = own.open("/jobs/sieved/changes")
    tally(page, "4 changes shown, 4 received")
    page.get_by_label("Type of change").select_option("decreased values")
    tally(page, "1 change shown, 4 received")
    assert [row.split()[1] for row in rows(page)] == ["bolt", "bolt"]
    page.get_by_label("Type of change").select_option("all changes")
    page.get_by_label("Text in a row").fill("NUT")
    tally(page, "2 changes shown, 4 received")
    page.get_by_label("Text in a row").fill("screw")
    expect(page.get_by_text("No matching changes.")).to_be_visible()
    page.get_by_label("Text in a row").fill("9")
    page.get_by_label("Group key").fill("bolt")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Group bolt")).to_be_visible()
    tally(page, "2 changes shown, 2 received")
    page.get_by_label("Type of change").select_option("decreased values")
    page.get_by_label("-U rows").check()
    assert urlsplit(page.url).query == "key=bolt&text=9&only=down&before=on"
    page.reload()
    tally(page, "1 change shown, 2 received")
    expect(page.get_by_label("Text in a row")).to_have_value("9")
    expect(page.locator("tr.before").first).to_be_visible()


def test_a_pause_holds_the_page_still_and_loses_nothing(workshop_visits: Visits) -> None:
    own = workshop_visits
    table = living(own, "held", {"bolt": (7,)})
    page = own.open("/jobs/held/changes")
    tally(page, "1 change shown")
    page.get_by_role("button", name="Pause").click()
    table.write({"bolt": (8,)}, {"bolt": (9,)})
    expect(page.get_by_role("button", name="Resume stream (2 new)")).to_be_visible()
    assert rows(page) == ["+I bolt 7 7"]
    tally(page, "1 change shown, 3 received")
    page.get_by_role("button", name="Resume stream (2 new)").click()
    tally(page, "3 changes shown, 3 received")
    assert rows(page)[-1] == "+I bolt 7 7"


def test_what_is_too_much_for_a_page_is_said_not_to_be_shown(workshop_visits: Visits) -> None:
    own = workshop_visits
    table = living(own, "flooding", {"bolt": (7,)})
    page = own.open("/jobs/flooding/changes")
    tally(page, "1 change shown")
    table.write({"bolt": (7,), **{f"g{number}": (1,) for number in range(KEPT_MAX + 100)}})
    tally(page, f"{SHOWN_MAX} changes shown of 2,000 that match, 2,101 received.")
    tally(page, "This page no longer keeps 101 older ones; the table has them.")
    assert len(rows(page)) == SHOWN_MAX


def test_a_stream_that_breaks_goes_on_where_it_was(browser: Browser, tmp_path: Path) -> None:
    visits = Visits(browser, Served.start(tmp_path))
    table = living(visits, "items", {"bolt": (7,)})
    visits.expect("ERR_CONNECTION_REFUSED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE|ERR_INCOMPLETE")
    page = visits.open("/jobs/items/changes")
    tally(page, "1 change shown, 1 received")
    port = urlsplit(visits.served.address).port
    assert visits.served.stop() == 0
    banner = page.get_by_text("Connection lost, retrying.")
    expect(banner).to_be_visible()
    table.write({"bolt": (8,)}, {"bolt": (9,)})
    visits.served = Served.start(tmp_path, "--port", str(port))
    expect(banner).to_be_hidden(timeout=2 * PATIENCE_MS)
    expect(page.locator("#tally")).to_contain_text(
        "3 changes shown, 3 received", timeout=PATIENCE_MS
    )
    expect(page.locator("#gone")).to_be_hidden()
    # What was cleaned up meanwhile is said to be gone, and not passed over.
    assert visits.served.stop() == 0
    expect(banner).to_be_visible()
    newest = table.write({"bolt": (10,)}, {"bolt": (11,)}, {"bolt": (12,)})
    table.forget(newest - 1)
    visits.expect("status of 410")
    visits.served = Served.start(tmp_path, "--port", str(port))
    expect(page.locator("#gone")).to_contain_text(
        f"The list continues after epoch {newest - 1}", timeout=2 * PATIENCE_MS
    )
    expect(page.locator("#tally")).to_contain_text(
        "4 changes shown, 4 received", timeout=PATIENCE_MS
    )
    assert "11 → 12" in rows(page)[1]
    visits.close()
    assert visits.served.stop() == 0


def test_a_position_inside_an_epoch_names_its_table(workshop_visits: Visits) -> None:
    own = workshop_visits
    living(own, "dropped", {"bolt": (7,)})
    own.expect("ERR_FAILED")
    page = own.open("/jobs/dropped/changes")
    tally(page, "1 change shown")
    requested: list[str] = []

    def cut(route: Route) -> None:
        requested.append(parse_qs(urlsplit(route.request.url).query)["since"][0])
        row = '{"op": "+I", "epoch": 3, "seq": 5, "row": {"name": "nut", "total": 1, "top": 1}}'
        if len(requested) > 1:
            route.abort()
        else:
            body = f"event: change\nid: 3:5\ndata: {row}\n\n"
            route.fulfill(body=body, content_type="text/event-stream")

    page.route("**/v1/jobs/dropped/changes?*", cut)
    with page.expect_request(
        lambda request: "since=3%3A5%3A" in request.url, timeout=60_000
    ) as found:
        page.reload()
    assert re.fullmatch(r"\d+:\d+:[0-9a-f]{8}", requested[0])
    table = requested[0].rpartition(":")[2]
    assert parse_qs(urlsplit(found.value.url).query)["since"] == [f"3:5:{table}"]


def test_a_changed_query_brings_its_columns(workshop_visits: Visits) -> None:
    own = workshop_visits
    table = living(own, "reshaped", {"bolt": (7, 9)})
    page = own.open("/jobs/reshaped/changes")
    tally(page, "1 change shown")
    spec = load_spec(table.place.spec).document()
    spec["query"] = spec["query"].replace("MAX(v) AS top", "MIN(v) AS least")
    with own.served.client() as client:
        assert client.put("/v1/jobs/reshaped?replace=true", json=spec).status_code == 200
        assert client.post("/v1/jobs/reshaped/approve?state=keep").status_code == 202
    expect(page.get_by_role("columnheader", name="least")).to_be_visible(timeout=60_000)
    tally(page, "2 changes shown, 2 received")
    assert "NULL → 7" in rows(page)[1]
    page.evaluate("() => { window.loadedOnce = true; }")
    page.wait_for_timeout(1_000)  # it is not loaded over and over
    assert page.evaluate("() => window.loadedOnce")


def test_a_job_without_an_epoch_says_so(workshop_visits: Visits) -> None:
    own = workshop_visits
    table = Shop(own.served.data, "waiting")
    put(own.served, table)
    page = own.open("/jobs/waiting/changes")
    expect(page.get_by_text("No changes yet.")).to_be_visible()
