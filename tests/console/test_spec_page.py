"""The editor of a spec: mistakes with their places, the plan, a trial; and the job that is made."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.console.looks import Visits, assert_sound
from tests.console.shop import Shop, put

WRONG = """\
name: prices
source: {topic: shop.price}
columns: {name: STRING, price: INTT}
query: SELECT name, SUM(price) FROM p GROUP BY name
"""


def test_a_spec_is_checked_while_it_is_written_and_becomes_a_job(
    workshop_visits: Visits,
) -> None:
    own = workshop_visits
    page = own.open("/new")
    spec = page.get_by_role("textbox", name="Spec")
    expect(page.get_by_role("status").filter(has_text="Valid")).to_be_visible()
    spec.fill(WRONG)
    mistakes = page.get_by_role("list").filter(has_text="INTT")
    expect(mistakes).to_contain_text("columns.price")
    assert_sound(page, "new-mistakes")
    page.get_by_role("button", name="line 3, column").click()
    expect(spec).to_be_focused()
    assert page.evaluate("() => document.activeElement.selectionStart") == WRONG.index(
        "price: INTT"
    )
    page.get_by_role("button", name="Create the job").click()
    expect(page.get_by_role("alert").filter(has_text="Correct the spec")).to_be_visible()
    spec.fill(WRONG.replace("INTT", "INT"))
    expect(page.get_by_role("status").filter(has_text="Valid")).to_be_visible()
    expect(page.get_by_role("region", name="Result columns")).to_contain_text("sum_price")
    expect(page.get_by_role("img", name="group by name")).to_be_visible()
    page.get_by_role("button", name="Create the job").click()
    expect(page.get_by_role("heading", name="prices")).to_be_visible()
    assert own.served.job("prices")["actual"] == "CREATED"


def test_a_job_that_is_there_is_not_written_over(visits: Visits) -> None:
    visits.expect("status of 412")
    page = visits.open("/new")
    verdict = page.get_by_role("status").filter(has_text="there is a job items already")
    expect(verdict).to_be_visible()
    page.get_by_role("button", name="Create the job").click()
    expect(page.get_by_role("alert").filter(has_text="job 'items' is there")).to_be_visible()


def test_brokers_that_do_not_answer_are_said_to_be_silent(visits: Visits) -> None:
    page = visits.open("/new")
    page.get_by_role("button", name="Look at them").click()
    expect(page.get_by_text("did not give any message")).to_be_visible(timeout=15_000)


def test_a_spec_that_does_not_fit_the_state_is_saved_only_to_be_approved(
    workshop_visits: Visits,
) -> None:
    own = workshop_visits
    table = Shop(own.served.data, "remade")
    table.write({"bolt": (7,)})
    put(own.served, table)
    own.expect("status of 409")
    page = own.open("/jobs/remade/spec")
    spec = page.get_by_role("textbox", name="Spec")
    expect(page.get_by_role("status").filter(has_text="Valid")).to_be_visible()
    spec.fill(spec.input_value().replace("MAX(v)", "MIN(v)"))
    expect(page.get_by_role("img", name="MIN(v)")).to_be_visible()
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_role("alert").filter(has_text="another query")).to_be_visible()
    page.get_by_role("button", name="Save it to be approved").click()
    expect(page.get_by_role("heading", name="waits to be approved")).to_be_visible()
    page.get_by_role("button", name="Approve the changed spec").click()
    dialog = page.get_by_role("dialog", name="Begin remade anew?")
    dialog.get_by_label("Type its name").fill("remade")
    dialog.get_by_role("button", name="Drop the state and begin anew").click()
    expect(page.get_by_text("waits to be approved")).to_have_count(0)
    assert not table.place.table.exists()
    assert "MIN(v)" in own.served.job("remade")["spec"]["query"]
