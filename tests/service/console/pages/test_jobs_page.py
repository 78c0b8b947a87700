"""The list of all jobs: their newest changes, and actions on many of them."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.support.console.gallery import SCHEMES, WIDTHS
from tests.support.console.living import living
from tests.support.console.visits import Visits, assert_sound
from tests.support.service.served import SPEC, eventually

pytestmark = pytest.mark.slow


def test_the_newest_changes_of_all_jobs_lead_to_their_groups(workshop_visits: Visits) -> None:
    own = workshop_visits
    first = living(own, "newest-first", {"bolt": (7,)})
    second = living(own, "newest-second", {"nut": (1,)})
    page = own.open("/?find=newest-")
    first.write({"bolt": (7, 9)})
    rows = page.get_by_role("region", name="Newest changes").locator("tbody tr")
    expect(rows.first).to_contain_text("total 16, top 9")
    second.write({"nut": (1,), "<b>&amp;": (2,)}, {"nut": (1,)})
    expect(rows.first).to_contain_text("-D")
    expect(rows.first).to_contain_text("<b>&amp;")
    changes = [" ".join(each.split()) for each in rows.all_text_contents()]
    assert [each.split()[2] for each in changes[:3]] == ["-D", "+I", "+U"]
    for width, scheme in zip(WIDTHS, [*SCHEMES, "light"], strict=True):
        seen = own.open("/?find=newest-", width=width, scheme=scheme)
        expect(seen.get_by_role("link", name="bolt").first).to_be_visible()
        assert_sound(seen, f"newest-{width}-{scheme}")
    page.get_by_role("link", name="bolt").first.click(timeout=60_000)
    expect(page.get_by_role("region", name="History")).to_contain_text("9")


def test_selected_jobs_are_started_and_stopped(workshop_visits: Visits) -> None:
    own = workshop_visits
    names = ["bulk-a", "bulk-b", "bulk-c"]
    with own.served.client() as client:
        for name in names:
            assert client.put(f"/v1/jobs/{name}", content=SPEC).status_code == 201
    page = own.open("/?find=bulk-")
    expect(page.get_by_role("button", name="Start")).to_be_disabled()
    page.get_by_label("Select all jobs").check()
    page.get_by_label("Select bulk-c").uncheck()
    expect(page.get_by_text("2 selected")).to_be_visible()
    page.get_by_role("button", name="Start").click()
    eventually(lambda: [own.served.job(n)["desired"] for n in names[:2]] == ["RUNNING"] * 2)
    page.get_by_role("button", name="Stop").click()
    dialog = page.get_by_role("dialog", name="Stop the selected jobs?")
    expect(dialog).to_contain_text("bulk-a, bulk-b")
    assert_sound(page, "bulk")
    dialog.get_by_role("button", name="Stop jobs").click()
    eventually(lambda: [own.served.job(n)["desired"] for n in names[:2]] == ["STOPPED"] * 2)
    assert own.served.job("bulk-c")["actual"] == "CREATED"


def test_the_buttons_for_selected_jobs_are_there_with_the_first_job(
    workshop_visits: Visits,
) -> None:
    own = workshop_visits
    page = own.open("/?find=soon-")
    expect(page.get_by_text("No matching jobs")).to_be_visible()
    expect(page.get_by_role("button", name="Start")).to_be_hidden()
    with own.served.client() as client:
        assert client.put("/v1/jobs/soon-a", content=SPEC).status_code == 201
    page.get_by_label("Select soon-a").check()
    expect(page.get_by_role("button", name="Start")).to_be_enabled()
