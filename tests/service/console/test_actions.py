"""Actions: who is offered which, what they ask before, and that they are done."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import APIResponse, Browser, Page, Route, expect

from tests.support.console.shop import BROKEN, BROKEN_BY, Shop, put
from tests.support.console.visits import Visits, assert_sound, assert_sound_everywhere, write_spec
from tests.support.service.served import SPEC, Served, eventually

pytestmark = pytest.mark.slow


# Without a broker the first start fails after half a minute; then the service starts it again.
GOING = re.compile("starting|retrying")


def state(visits: Visits, name: str) -> str:
    return str(visits.served.job(name)["actual"])


def test_an_empty_service_says_what_to_do_next(browser: Browser, tmp_path: Path) -> None:
    visits = Visits(browser, Served.start(tmp_path))
    try:
        page = visits.open("/")
        assert_sound(page, "empty")
        expect(page.get_by_label("Command of the demo")).to_have_text("retally demo")
        visits.expect("status of 422")  # of the suggestion: there is no broker
        page.get_by_role("textbox", name="Topic").fill("shop.product")
        page.get_by_role("button", name="Suggest a spec").click()
        expect(page.get_by_role("heading", name="New job")).to_be_visible()
        expect(page.get_by_role("status").filter(has_text="did not answer")).to_be_visible()
        visits.close()
    finally:
        assert visits.served.stop() == 0


FLINK = """
CREATE TABLE product (name STRING, v INT) WITH ('connector' = 'kafka', 'topic' = 'shop.product',
  'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'canal-json');
CREATE TABLE by_name (name STRING, total INT, PRIMARY KEY (name) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'by-name', 'properties.bootstrap.servers' = 'kafka:9092',
  'key.format' = 'json', 'value.format' = 'json');
INSERT INTO by_name SELECT name, SUM(v) FROM product GROUP BY name;
INSERT INTO by_name SELECT name, MY_OWN(v) FROM product GROUP BY name;
"""


def test_a_file_of_flink_sql_becomes_specs_with_what_is_not_taken(workshop_visits: Visits) -> None:
    page = workshop_visits.open("/new?flink=true")
    page.get_by_label("File", exact=True).set_input_files(
        {"name": "shop.sql", "mimeType": "text/plain", "buffer": FLINK.encode()}
    )
    expect(page.get_by_label("Flink SQL")).to_have_value(FLINK)
    page.get_by_role("button", name="Convert").click()
    expect(page.get_by_role("button", name="by_name")).to_be_visible(timeout=60_000)
    expect(page.locator("#spec")).to_have_value(re.compile("SUM"))
    expect(page.get_by_role("list", name="Notes")).to_contain_text("not supported")
    expect(page.get_by_role("region", name="Result columns")).to_contain_text("SUM(v)")
    expect(page.get_by_role("status").filter(has_text="Valid")).to_be_visible()
    assert_sound(page, "flink")
    write_spec(page.get_by_role("textbox", name="Spec"), "name: typed")
    page.once("dialog", lambda dialog: dialog.dismiss())
    page.get_by_role("button", name="by_name").click()
    expect(page.locator("#spec")).to_have_value("name: typed")


def test_a_job_that_is_started_first_leads_to_its_groups(visits: Visits) -> None:
    page = visits.open("/jobs/items?first=true")
    expect(page).to_have_url(re.compile("/jobs/items$"))
    page.get_by_role("link", name="see a group").click(timeout=60_000)
    expect(page.get_by_role("region", name="History")).to_be_visible()


def test_a_job_is_started_at_once_and_stopped_after_a_question(workshop_visits: Visits) -> None:
    own = workshop_visits
    with own.served.client() as client:
        assert client.put("/v1/jobs/started", content=SPEC).status_code == 201
    page = own.open("/jobs/started/spec")  # a tab that is not live
    page.get_by_role("button", name="Start", exact=True).click()
    expect(page.locator("#state")).to_contain_text(GOING)
    page.get_by_role("link", name="Activity").click()
    page.get_by_role("button", name="Stop", exact=True).click()
    dialog = page.get_by_role("dialog", name="Stop started?")
    expect(dialog).to_be_visible()
    assert_sound(page, "stop")
    dialog.get_by_role("button", name="Cancel").click()
    expect(dialog).to_be_hidden()
    assert own.served.job("started")["desired"] == "RUNNING"
    page.get_by_role("button", name="Stop", exact=True).click()
    dialog.get_by_role("button", name="Stop job").click()
    expect(dialog).to_be_hidden()
    assert own.served.job("started")["desired"] == "STOPPED"
    expect(page.get_by_role("button", name="Start", exact=True)).to_be_visible()


def test_a_page_shows_what_its_reader_has_done_even_if_it_was_just_reading(
    workshop_visits: Visits,
) -> None:
    own = workshop_visits
    with own.served.client() as client:
        assert client.put("/v1/jobs/overtaken", content=SPEC).status_code == 201
    page, held = own.open("/jobs/overtaken/spec"), list[tuple[Route, APIResponse]]()

    def hold(route: Route) -> None:
        if held:
            route.continue_()
        else:
            held.append((route, route.fetch()))

    def is_held() -> bool:
        page.wait_for_timeout(50)  # the browser's messages are read meanwhile
        return bool(held)

    page.evaluate("document.body.dataset.refresh = '100'")
    page.route("**/jobs/overtaken/spec", hold)
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    eventually(is_held)
    with page.expect_response("**/start"):
        page.get_by_role("button", name="Start", exact=True).click()
    page.evaluate("document.body.dataset.refresh = '0'")  # so that no later refresh mends it
    route, answer = held[0]
    route.fulfill(response=answer)  # it was read before the start
    expect(page.locator("#state")).to_contain_text(GOING)


def test_a_job_is_deleted_only_by_who_types_its_name(workshop_visits: Visits) -> None:
    own = workshop_visits
    table = Shop(own.served.data, "deleted")
    table.write({"bolt": (7,)})
    put(own.served, table)
    page = own.open("/jobs/deleted")
    page.get_by_role("button", name="Delete").click()
    dialog = page.get_by_role("dialog", name="Delete deleted?")
    dialog.get_by_text("Drop the table").click()
    name = dialog.get_by_label("Type the job's name")
    name.fill("delete")
    dialog.get_by_role("button", name="Delete job").click()
    expect(dialog).to_be_visible()
    assert state(own, "deleted") == "CREATED"
    name.fill("deleted")
    dialog.get_by_role("button", name="Delete job").click()
    page.wait_for_url("**/")
    expect(page.get_by_role("link", name="deleted")).to_have_count(0)
    assert not table.place.table.exists()


def test_a_savepoint_is_created_and_deleted(workshop_visits: Visits) -> None:
    own = workshop_visits
    table = Shop(own.served.data, "kept")
    table.write({"bolt": (7,)})
    put(own.served, table)
    own.expect("status of 4[02][0-9]")
    page = own.open("/jobs/kept")
    page.get_by_role("button", name="Create savepoint").click()
    dialog = page.get_by_role("dialog", name="Create a savepoint of kept")
    dialog.get_by_label("Name", exact=True).fill("not a name")
    dialog.get_by_role("button", name="Create savepoint").click()
    expect(dialog.get_by_role("alert")).to_contain_text("letters, digits")
    dialog.get_by_label("Name", exact=True).fill("before-import")
    dialog.get_by_role("button", name="Create savepoint").click()
    expect(dialog).to_be_hidden(timeout=20_000)
    row = page.get_by_role("row", name="before-import")
    expect(row).to_be_visible()
    row.get_by_role("button", name="Delete savepoint").click()
    dialog = page.get_by_role("dialog", name="Delete savepoint before-import?")
    dialog.get_by_role("button", name="Delete savepoint").click()
    expect(row).to_be_hidden(timeout=20_000)


def test_a_dialog_is_closed_by_a_click_outside_but_not_by_selecting_its_text(
    workshop_visits: Visits,
) -> None:
    own = workshop_visits
    table = Shop(own.served.data, "selected")
    table.write({"bolt": (7,)})
    put(own.served, table)
    page = own.open("/jobs/selected")
    page.get_by_role("button", name="Create savepoint").click()
    dialog = page.get_by_role("dialog", name="Create a savepoint of selected")
    name = dialog.get_by_label("Name", exact=True)
    name.fill("before-import")
    box = name.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(5, 5, steps=5)
    page.mouse.up()
    expect(dialog).to_be_visible()
    expect(name).to_have_value("before-import")
    page.mouse.click(5, 5)
    expect(dialog).to_be_hidden()


def test_a_viewer_is_offered_nothing_and_told_why(
    guarded_visits: tuple[Visits, dict[str, str]],
) -> None:
    visits, tokens = guarded_visits
    visits.expect("status of 403")
    page = visits.open("/jobs/items", token=tokens["viewer"])
    expect(page.get_by_text("requires the role operator")).to_be_visible()
    for name in ("Start", "Stop", "Delete", "Create savepoint"):
        expect(page.get_by_role("button", name=name)).to_have_count(0)
    expect(page.get_by_role("link", name="New job")).to_have_count(0)
    page.goto("/jobs/items/spec")
    expect(page.get_by_role("textbox")).to_have_count(0)
    page.goto("/new")
    expect(page.get_by_role("heading", name="role does not allow this")).to_be_visible()
    page = visits.open("/jobs/items", token=tokens["operator"])
    expect(page.get_by_role("button", name="Start")).to_be_visible()
    expect(page.get_by_role("button", name="Delete")).to_have_count(0)


def test_an_operator_of_a_session_starts_a_job(
    guarded_visits: tuple[Visits, dict[str, str]],
) -> None:
    """With the session's cookie and its word, which a form of another site does not have."""
    visits, tokens = guarded_visits
    with visits.served.client() as client:
        assert client.put("/v1/jobs/other", content=SPEC).status_code == 201
    page = visits.open("/jobs/other", token=tokens["operator"])
    page.get_by_role("button", name="Start").click()
    expect(page.locator("#state")).to_contain_text(GOING)
    with visits.served.client() as client:
        client.post("/v1/jobs/other/stop")
    eventually(lambda: state(visits, "other") == "STOPPED")


def log_in_elsewhere(page: Page, token: str) -> None:
    """Log in again in the same browser, as in another tab."""
    login = page.context.request.post("/v1/session", data={"token": token})
    assert login.status == 201


def test_a_page_goes_on_after_another_login_in_its_browser(
    guarded_visits: tuple[Visits, dict[str, str]],
) -> None:
    visits, tokens = guarded_visits
    visits.expect("status of 403")
    page = visits.open("/", token=tokens["viewer"])
    log_in_elsewhere(page, tokens["viewer"])
    page.get_by_role("button", name="Log out").click()
    page.wait_for_url("**/login")
    page = visits.open("/new", token=tokens["admin"])
    expect(page.get_by_role("status").filter(has_text="Valid")).to_be_visible()
    log_in_elsewhere(page, tokens["admin"])
    spec = page.get_by_role("textbox", name="Spec")
    write_spec(spec, page.locator("#spec").input_value() + "nonsense: 1\n")
    preview = page.get_by_role("region", name="Preview of the spec")
    expect(preview).to_contain_text("unknown key 'nonsense'")


def test_a_failed_job_says_why_and_what_helps(workshop_visits: Visits) -> None:
    visits = workshop_visits
    assert_sound_everywhere(visits, f"/jobs/{BROKEN}", "failed")
    page = visits.open(f"/jobs/{BROKEN}")
    notice = page.get_by_role("region", name="The job has failed")
    expect(notice).to_contain_text("source-changed")
    expect(notice).to_contain_text(BROKEN_BY)
    expect(notice).to_contain_text("Restore the topic")
    expect(page.get_by_role("button", name="Start")).to_be_visible()
