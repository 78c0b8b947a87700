"""The editor of a spec: mistakes with their places, the plan, a trial; and the job that is made."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from schemas.spec.file import load_spec
from service.console.editor.vocabulary import STARTERS, Starter
from tests.support.console.shop import Shop, put
from tests.support.console.visits import Visits, assert_sound, write_spec

pytestmark = pytest.mark.slow

WRONG = """\
name: prices
source: {topic: shop.price}
columns: {name: STRING, price: INTT}
query: SELECT name, SUM(price) FROM p GROUP BY name
"""


def test_a_spec_is_checked_while_it_is_written_and_becomes_a_job(workshop_visits: Visits) -> None:
    own = workshop_visits
    page = own.open("/new")
    spec = page.get_by_role("textbox", name="Spec")
    expect(page.get_by_role("status").filter(has_text="Valid")).to_be_visible()
    write_spec(spec, WRONG)
    mistakes = page.get_by_role("list").filter(has_text="INTT")
    expect(mistakes).to_contain_text("columns.price")
    assert_sound(page, "new-mistakes")
    page.get_by_role("button", name="line 3, column").click()
    expect(spec).to_be_focused()
    expect(page.locator(".cm-activeLine")).to_contain_text("price: INTT")
    expect(page.get_by_role("button", name="Create the job")).to_be_disabled()
    write_spec(spec, WRONG.replace("INTT", "INT").replace("SUM(price)", "SUM(prize)"))
    expect(page.get_by_role("button", name="line 4, column 25")).to_be_visible()
    expect(page.locator(".cm-lintRange-error")).to_have_text("prize")
    write_spec(spec, WRONG.replace("INTT", "INT"))
    expect(page.get_by_role("status").filter(has_text="Valid")).to_be_visible()
    expect(page.get_by_role("region", name="Result columns")).to_contain_text("sum_price")
    expect(page.get_by_role("img", name="group by name")).to_be_visible()
    page.get_by_role("button", name="Create the job").click()
    expect(page.get_by_role("heading", name="prices")).to_be_visible()
    assert own.served.job("prices")["actual"] == "CREATED"


def test_a_job_that_is_there_is_not_written_over(visits: Visits) -> None:
    page = visits.open("/new")
    spec = page.get_by_role("textbox", name="Spec")
    expect(page.get_by_role("status").filter(has_text="Valid")).to_be_visible()
    expect(spec).to_contain_text("name: items-2")  # a free name
    write_spec(spec, page.locator("#spec").input_value().replace("items-2", "items"))
    verdict = page.get_by_role("status").filter(has_text="a job named items already exists")
    expect(verdict).to_be_visible()
    expect(page.get_by_role("button", name="Create the job")).to_be_disabled()


def test_the_editor_completes_keys_columns_and_functions(visits: Visits) -> None:
    page = visits.open("/new")
    spec = page.get_by_role("textbox", name="Spec")
    choices = page.get_by_role("listbox").get_by_role("option")
    spec.press("Control+End")
    page.keyboard.type("waterm")
    expect(choices.first).to_have_text("watermark")
    page.wait_for_timeout(200)  # a choice that has just appeared is not taken by accident
    page.keyboard.press("Enter")
    expect(page.locator("#spec")).to_have_value(re.compile(r"\nwatermark: $"))
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")  # stays in the editor
    page.keyboard.type("idle")
    expect(choices.first).to_have_text("idle_after")
    write_spec(spec, "columns: {name: STRING, price: INT}\nquery: SELECT pri")
    spec.press("Control+End")
    page.keyboard.press("Control+Space")
    expect(choices.first).to_have_text("price")
    page.wait_for_timeout(200)
    page.keyboard.press("Enter")
    page.keyboard.type(", COU")
    expect(choices.first).to_contain_text("COUNT")


def test_a_mistake_of_the_query_is_shown_beside_those_of_other_keys(visits: Visits) -> None:
    page = visits.open("/new")
    spec = page.get_by_role("textbox", name="Spec")
    write_spec(
        spec, WRONG.replace("INTT", "INT").replace("SUM(price)", "SUM(prise)") + "snik: {}\n"
    )
    mistakes = page.get_by_role("region", name="Preview of the spec")
    expect(mistakes).to_contain_text("unknown key 'snik'; did you mean 'sink'?")
    expect(mistakes).to_contain_text("unknown column `prise`")
    expect(page.locator(".cm-lintRange")).to_have_count(2)


@pytest.mark.parametrize("starter", STARTERS, ids=lambda each: each.name)
def test_each_template_is_a_valid_spec(visits: Visits, starter: Starter) -> None:
    page = visits.open("/new")
    page.get_by_role("link", name=starter.label).click()
    expect(page.get_by_role("link", name=starter.label)).to_have_attribute("aria-current", "true")
    expect(page.get_by_role("status").filter(has_text="Valid")).to_be_visible()


def test_why_a_spec_cannot_be_checked_is_shown_until_a_check_succeeds(visits: Visits) -> None:
    visits.expect("status of 422")
    page = visits.open("/new")
    valid = page.get_by_role("status").filter(has_text="Valid")
    expect(valid).to_be_visible()
    spec = page.get_by_role("textbox", name="Spec")
    previews = re.compile("/preview")
    page.route(
        previews, lambda route: route.continue_(url=f"{route.request.url}&sample=not-a-choice")
    )
    text = page.locator("#spec").input_value()
    write_spec(spec, f"{text}# one\n")
    refusal = page.locator("#editor").get_by_role("alert")
    expect(refusal).to_contain_text("sample")
    expect(refusal).not_to_contain_text("JavaScript")
    page.unroute(previews)
    write_spec(spec, f"{text}# two\n")
    expect(refusal).to_have_count(0)
    expect(valid).to_be_visible()


def test_brokers_that_do_not_answer_are_said_to_be_silent(visits: Visits) -> None:
    page = visits.open("/new")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_text("did not answer")).to_be_visible(timeout=15_000)


def change_query(page: Page, before: str, after: str) -> None:
    """Save another query for a job that has begun, to be approved."""
    spec = page.get_by_role("textbox", name="Spec")
    expect(page.get_by_role("status").filter(has_text="Valid")).to_be_visible()
    write_spec(spec, page.locator("#spec").input_value().replace(before, after))
    expect(page.get_by_role("img", name=after)).to_be_visible()
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_role("alert").filter(has_text="another query")).to_be_visible()
    page.get_by_role("button", name="Save for approval").click()
    expect(page.get_by_role("heading", name="pending approval")).to_be_visible()


def test_a_changed_query_that_the_state_answers_is_taken_with_it(workshop_visits: Visits) -> None:
    own = workshop_visits
    table = Shop(own.served.data, "evolved")
    table.write({"bolt": (7, 9)})
    put(own.served, table)
    own.expect("status of 409")
    page = own.open("/jobs/evolved/spec")
    change_query(page, "MAX(v) AS top", "MIN(v) AS least")
    notice = page.get_by_role("region", name="A changed spec is pending approval")
    expect(notice).to_contain_text("does not read the topic again")
    expect(notice).to_contain_text("New columns: least")
    assert_sound(page, "pending")
    notice.get_by_role("button", name="Approve").click()
    dialog = page.get_by_role("dialog", name="Approve the changed spec of evolved?")
    dialog.get_by_role("button", name="Approve").click()
    expect(notice).to_be_hidden(timeout=30_000)
    with own.served.client() as client:
        row = client.get("/v1/jobs/evolved/results/bolt?min_epoch=2&wait=10").json()["row"]
    assert row == {"name": "bolt", "total": 16, "least": 7}


def test_a_job_begins_anew_only_for_who_types_its_name(workshop_visits: Visits) -> None:
    own = workshop_visits
    table = Shop(own.served.data, "remade")
    table.write({"bolt": (7,)})
    put(own.served, table)
    own.expect("status of 409")
    page = own.open("/jobs/remade/spec")
    change_query(page, "SUM(v)", "SUM(v + 1)")
    expect(page.get_by_text("cannot answer the new query")).to_be_visible()
    page.get_by_role("button", name="Drop state and start over").click()
    dialog = page.get_by_role("dialog", name="Drop the state of remade?")
    dialog.get_by_role("button", name="Drop state").click()
    expect(dialog).to_be_visible()
    dialog.get_by_label("Type the job's name").fill("remade")
    dialog.get_by_role("button", name="Drop state").click()
    expect(page.get_by_text("pending approval")).to_have_count(0)
    assert not table.place.table.exists()
    assert "SUM(v + 1)" in own.served.job("remade")["spec"]["query"]


def put_query(visits: Visits, table: Shop, before: str, after: str) -> None:
    """Make another query pending, as another admin does."""
    spec = load_spec(table.place.spec).document()
    spec["query"] = spec["query"].replace(before, after)
    with visits.served.client() as client:
        address = f"/v1/jobs/{spec['name']}?replace=true"
        assert client.put(address, json=spec).json()["pending"]["query"] == spec["query"]


@pytest.mark.parametrize("button", ["Approve", "Drop state"])
def test_a_spec_that_became_pending_meanwhile_is_not_approved(
    workshop_visits: Visits, button: str
) -> None:
    own = workshop_visits
    table = Shop(own.served.data, f"raced-{button[:4].lower()}")
    table.write({"bolt": (7,)})
    put(own.served, table)
    name = table.place.name
    own.expect("status of 412")
    put_query(own, table, "MAX(v) AS top", "MIN(v) AS least")
    page = own.open(f"/jobs/{name}")
    page.get_by_role("button", name=button).click()
    dialog = page.get_by_role("dialog")
    if button == "Drop state":
        dialog.get_by_label("Type the job's name").fill(name)
    put_query(own, table, "MAX(v) AS top", "MIN(v) AS lowest")
    dialog.get_by_role("button", name=button).click()
    expect(dialog.get_by_role("alert")).to_contain_text("The spec was changed meanwhile")
    job = own.served.job(name)
    assert "AS lowest" in job["pending"]["query"]
    assert (job["revision"], job["actual"]) == (1, "AWAITING_APPROVAL")
    assert table.place.table.exists()
    dialog.get_by_role("button", name="Cancel").click()
    expect(page.get_by_text("New columns:")).to_contain_text("lowest")


def test_the_editor_does_not_write_over_a_spec_that_was_changed_meanwhile(
    workshop_visits: Visits,
) -> None:
    own = workshop_visits
    table = Shop(own.served.data, "written-twice")
    table.write({"bolt": (7,)})
    put(own.served, table)
    own.expect("status of 412")
    page = own.open("/jobs/written-twice/spec")
    valid = page.get_by_role("status").filter(has_text="Valid")
    expect(valid).to_be_visible()
    spec = load_spec(table.place.spec).document()
    with own.served.client() as client:
        changed = client.put("/v1/jobs/written-twice", json=spec | {"retention": "1d"})
        assert changed.json()["revision"] == 2
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_role("alert").filter(has_text="changed meanwhile")).to_be_visible()
    assert own.served.job("written-twice")["spec"]["retention"] == "1d"
    page.reload()
    expect(valid).to_be_visible()
    page.get_by_role("button", name="Save", exact=True).click()
    page.wait_for_url("**/jobs/written-twice")
