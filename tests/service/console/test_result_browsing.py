"""Results, groups, quarantine and audits in a browser: usable by everybody, live, findable."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.support.console.living import living
from tests.support.console.visits import Visits, assert_sound, assert_sound_everywhere
from tests.support.sampling import quick

pytestmark = pytest.mark.costly("each page in light and dark, at three widths")

PAGES = {
    "results": "/jobs/items/results",
    "past": "/jobs/items/results?as_of=epoch:30&where=total%3E%3D2&order=-top",
    "refused": "/jobs/items/results?where=total%3E%3Dx",
    "diff": "/jobs/items/diff?from=40",
    "key": "/jobs/items/results/bolt?epoch=59",
    "changes": "/jobs/items/changes",
    "quarantine": "/jobs/items/quarantine",
    "message": "/jobs/items/quarantine/60-t-0-600",
    "bytes": "/jobs/items/quarantine/60-t-0-601",
    "activity": "/jobs/items/activity",
    "audit": "/jobs/items/activity/audit-different",
    "undecided": "/jobs/items/activity/audit-undecided",
}


@pytest.mark.parametrize("name", quick(PAGES, ["results"]))
def test_a_page_is_usable_in_light_and_dark_wide_and_narrow(visits: Visits, name: str) -> None:
    if name == "refused":
        visits.expect("status of 422")
    assert_sound_everywhere(visits, PAGES[name], name)


class Clicks:
    """A person with a mouse, whose clicks are counted."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.count = 0

    def link(self, name: str | re.Pattern[str]) -> None:
        self.page.get_by_role("main").get_by_role("link", name=name).first.click()
        self.count += 1


def test_from_the_jobs_to_why_a_max_went_down_in_at_most_five_clicks(visits: Visits) -> None:
    page = visits.open("/")
    person = Clicks(page)
    person.link("items")
    person.link("Changes")
    page.get_by_label("Type of change").select_option("extreme")
    person.count += 2  # the list, and the choice
    fell = page.locator("tr.after", has=page.locator("td.extreme")).first
    expect(fell).to_contain_text("65 → 7")
    person.link("bolt")
    why = page.get_by_role("region", name="Why the value changed")
    expect(why).to_contain_text("top decreased from 65 to 7 in epoch 59")
    expect(why).to_contain_text("the value 65 was retracted once (read from t/0 [580, 590)")
    expect(why).to_contain_text("7 is now the greatest of 4")
    expect(why).to_be_in_viewport()
    assert person.count <= 5


@pytest.mark.slow
def test_results_follow_the_job_and_mark_what_changed(workshop_visits: Visits) -> None:
    own = workshop_visits
    table = living(own, "marked", {"bolt": (7, 9), "nut": (1,)})
    page = own.open("/jobs/marked/results")
    cell = page.get_by_role("row", name="bolt").locator("[data-column=top]")
    expect(cell).to_have_text("9")
    table.write({"bolt": (7,), "nut": (1,)})
    expect(cell).to_contain_text("was 9")
    expect(cell).to_have_class(re.compile("fresh"))
    expect(page.get_by_role("row", name="nut").locator(".fresh")).to_have_count(0)
    expect(cell).to_have_text("7")  # the mark goes by itself


@pytest.mark.slow
def test_the_slider_goes_through_the_epochs_and_back_to_now(visits: Visits) -> None:
    page = visits.open("/jobs/items/results")
    page.evaluate("() => { window.loadedOnce = true; }")
    slider = page.get_by_role("slider", name="Epoch")
    slider.focus()
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
    expect(page.get_by_text("as of epoch 57")).to_be_visible()
    bolt = page.get_by_role("row", name="bolt").locator("[data-column=top]")
    expect(bolt).to_have_text("64")
    expect(page.get_by_role("link", name="Changes since then")).to_be_visible()
    assert page.url.endswith("as_of=epoch%3A57")
    page.keyboard.press("End")
    expect(page.get_by_text("newest epoch 60")).to_be_visible()  # the job does not run
    expect(bolt).to_have_text("7")
    assert page.evaluate("() => window.loadedOnce")


def test_a_time_leads_to_the_epoch_that_was_the_newest_then(visits: Visits) -> None:
    page = visits.open("/jobs/items/results")
    moment = page.locator("#moment time").get_attribute("datetime")
    assert moment is not None
    page.get_by_label("or time UTC").fill(moment[:19])
    page.get_by_role("button", name="Go", exact=True).click()
    page.wait_for_url("**as_of=time*")
    expect(page.get_by_text("as of epoch 59")).to_be_visible()


@pytest.mark.slow
def test_a_search_is_typed_and_taken_back(visits: Visits) -> None:
    page = visits.open("/jobs/items/results")
    page.get_by_label("Value").fill("bo")
    page.keyboard.press("Enter")
    expect(page.get_by_role("region", name="Results").locator("tbody tr")).to_have_count(1)
    page.get_by_role("link", name="Remove filter: name starts with bo").click()
    expect(page.get_by_role("region", name="Results").locator("tbody tr")).to_have_count(4)
    page.get_by_role("link", name="top", exact=True).click()
    first = page.get_by_role("region", name="Results").locator("tbody tr").first
    expect(first).to_contain_text("nut")


@pytest.mark.slow
def test_a_group_page_follows_its_group(workshop_visits: Visits) -> None:
    own = workshop_visits
    table = living(own, "told", {"bolt": (7, 9, 9, 12)})
    page = own.open("/jobs/told/results/bolt")
    expect(page.get_by_text("top has not changed since the group was added")).to_be_visible()
    values = page.get_by_role("region", name="Values of v")
    expect(values.locator("tbody tr")).to_have_count(3)
    expect(values.get_by_role("row", name="12")).to_contain_text("top")
    table.write({"bolt": (7, 9, 9)})
    why = page.get_by_role("region", name="Why the value changed")
    expect(why).to_contain_text("12 was retracted once")
    expect(why).to_contain_text("9 is now the greatest of 3")
    expect(values.get_by_role("row", name="9")).to_contain_text("2")
    assert_sound(page, "told")


@pytest.mark.slow
def test_a_message_that_the_job_would_refuse_is_refused_at_the_field(
    workshop_visits: Visits,
) -> None:
    own = workshop_visits
    table = living(own, "refusing", {"bolt": (7,)})
    number = table.refuse((b'{"data": 3}', "data is no array"))
    own.expect("status of 422")
    page = own.open("/jobs/refusing/quarantine")
    page.get_by_role("link", name=f"t/0 @{10 * number}").click()
    page.get_by_role("button", name="Resend corrected").click()
    dialog = page.get_by_role("dialog", name="Resend corrected")
    field = dialog.get_by_label("Message")
    expect(field).to_have_value('{"data": 3}')
    field.fill('{"data": [{"name": "bolt", "v": "<b>x"}], "type": "INSERT"}')
    dialog.get_by_role("button", name="Resend").click()
    expect(dialog.get_by_role("alert")).to_contain_text("the job cannot process this message")
    expect(dialog.get_by_role("alert")).to_contain_text("<b>x")
    expect(field).to_have_attribute("aria-invalid", "true")
    assert_sound(page, "fixing")
    dialog.get_by_role("button", name="Cancel").click()
    expect(dialog).to_be_hidden()


def test_messages_are_found_by_reason_and_text_and_checked_before_they_are_resent(
    workshop_visits: Visits,
) -> None:
    own = workshop_visits
    table = living(own, "refused", {"bolt": (7,)})
    wrong = b'{"type": "INSERT", "data": [{"name": "%s", "v": "x"}]}'
    fits = b'{"type": "INSERT", "data": [{"name": "nut", "v": "1"}]}'
    table.refuse(
        *((wrong % name, f"v: '{name.decode()}' is not a valid INT") for name in (b"a", b"b")),
        (fits, "column 'v' was missing"),
    )
    page = own.open("/jobs/refused/quarantine")
    tabs = page.get_by_role("navigation", name="Pages of job refused")
    expect(tabs.get_by_role("link", name="Quarantine with 3 messages")).to_be_visible()
    rows = page.get_by_role("region", name="Messages in quarantine").locator("tbody tr")
    expect(rows).to_have_count(3)
    reasons = page.get_by_role("list", name="Reasons")
    reasons.get_by_role("link", name="2 v: '\u2026' is not a valid INT").click()
    expect(rows).to_have_count(2)
    page.get_by_role("link", name="Show all").click()
    page.get_by_label("Text in a message or its reason").fill("NUT")
    page.keyboard.press("Enter")
    expect(rows).to_have_count(1)
    page.get_by_role("link", name="Show all").click()
    page.get_by_label("Select all messages of this page").check()
    expect(page.get_by_text("3 selected")).to_be_visible()
    page.get_by_role("button", name="Resend selected").click()
    dialog = page.get_by_role("dialog", name="Resend the selected messages?")
    expect(dialog).to_contain_text("can process 1 of 3 messages now, and would refuse 2 again")
    assert_sound(page, "resending")
    dialog.get_by_role("button", name="Resend 1").click()
    page.wait_for_url("**/activity")
    expect(page.get_by_role("region", name="Operations").locator("tbody tr")).to_have_count(1)
    expect(page.get_by_role("link", name="resend message")).to_be_visible()


@pytest.mark.slow
def test_only_an_admin_sends_a_message_again(guarded_visits: tuple[Visits, dict[str, str]]) -> None:
    visits, tokens = guarded_visits
    page = visits.open("/jobs/items/activity", token=tokens["viewer"])
    expect(page.get_by_text("Starting an audit requires the role")).to_be_visible()
    expect(page.get_by_role("button", name="Start audit")).to_have_count(0)
    expect(page.get_by_role("heading", name="No operations yet")).to_be_visible()
    page.goto("/jobs/items/quarantine")
    expect(page.get_by_role("heading", name="The quarantine is empty")).to_be_visible()


@pytest.mark.slow
def test_what_is_asked_for_is_followed_to_its_end(workshop_visits: Visits) -> None:
    """An audit, and a message sent again. There is no broker, so they fail; that is told too."""
    own = workshop_visits
    table = living(own, "asked", {"bolt": (7,)})
    number = table.refuse((b'{"data": 3}', "data is no array"))
    audits = own.open("/jobs/asked/activity")
    audits.get_by_role("button", name="Start audit").click()
    row = audits.get_by_role("region", name="Operations").locator("tbody tr")
    expect(row).to_have_count(1)
    row.get_by_role("link").click()
    expect(audits.get_by_role("heading", name="Audit", exact=True)).to_be_visible()
    message = own.open(f"/jobs/asked/quarantine/{number}-t-0-{10 * number}")
    message.get_by_role("button", name="Resend unchanged").click()
    dialog = message.get_by_role("dialog", name="Resend unchanged?")
    dialog.get_by_role("button", name="Resend").click()
    expect(dialog).to_be_hidden()
    expect(message.get_by_text("Resending:")).to_be_visible()
    expect(message.get_by_text("Resending failed")).to_be_visible(timeout=120_000)
    failed = audits.get_by_role("region", name="Operation failed")
    expect(failed).to_be_visible(timeout=120_000)
    for page in (audits, message):  # nothing more to follow
        page.wait_for_function("() => document.body.dataset.refresh === '0'")
