"""The pages of a job's views, in a browser, while views come and go."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.support.console.shop import Shop, put
from tests.support.console.viewed import (
    LEAST,
    MOST,
    VIEWED,
    approve,
    put_only_views,
    put_views,
    refuse,
)
from tests.support.console.visits import Visits, assert_sound, assert_sound_everywhere, write_spec

PATIENCE_MS = 60_000


def picker(page: Page) -> list[str]:
    return (
        page.get_by_role("navigation", name="Views of job viewed")
        .get_by_role("link")
        .all_inner_texts()
    )


def query_with_duckdb(page: Page) -> list[tuple[Any, ...]]:
    """Run the statement of the card "Query this table", and return its rows."""
    statement = page.get_by_label("Statement for DuckDB").text_content()
    assert statement is not None
    names: dict[str, Any] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(statement, names)
    return sorted(names["current"].fetchall())


@pytest.mark.slow
def test_views_come_and_go_while_their_pages_are_open(workshop_visits: Visits) -> None:
    own = workshop_visits
    own.expect("status of 404")
    table = Shop(own.served.data, VIEWED)
    table.write({"bolt": (7, 9), "nut": (1,)})
    put(own.served, table)
    overview, results = own.open("/jobs/viewed"), own.open("/jobs/viewed/results")
    assert not picker(results)
    with own.served.client() as client:
        put_views(client, {"least": LEAST, "most": MOST})
        notice = overview.get_by_role("region", name="A changed spec is pending approval")
        expect(notice).to_contain_text("New columns and views: least, most")
        notice.get_by_role("button", name="Approve").click()
        dialog = overview.get_by_role("dialog", name="Approve the changed spec of viewed?")
        dialog.get_by_role("button", name="Approve").click()
        expect(notice).to_be_hidden(timeout=PATIENCE_MS)
        views = overview.get_by_role("region", name="List of views")
        expect(views.get_by_role("rowheader")).to_have_text(["the job's query", "least", "most"])
        assert_sound(overview, "views")
        links = results.get_by_role("navigation", name="Views of job viewed").get_by_role("link")
        expect(links).to_have_text(["the job's query", "least", "most"])
        views.get_by_role("link", name="least").click()
        expect(overview.get_by_role("rowheader").first).to_be_visible()
        assert picker(overview) == ["the job's query", "least", "most"]
        assert_sound_everywhere(own, "/jobs/viewed/views/most/results", "view-results")

        assert query_with_duckdb(own.open("/jobs/viewed/views/least")) == [("bolt", 7), ("nut", 1)]

        pages = [own.open(f"/jobs/viewed/views/most/{name}") for name in ("results", "changes")]
        # The view was added by the newest epoch, from which its history starts.
        expect(pages[1].get_by_text("No changes since epoch 2.")).to_be_visible()
        pages.append(own.open("/jobs/viewed"))
        put_views(client, {"least": LEAST})
        expect(pages[2].get_by_text("Removed columns and views: most")).to_be_visible()
        approve(client)
        for page in pages[:2]:
            expect(page.get_by_text("job 'viewed' has no view 'most'")).to_be_visible(
                timeout=PATIENCE_MS
            )
            page.get_by_role("link", name="Back to viewed").click()
            expect(page.get_by_role("region", name="List of views")).to_be_visible()
        expect(pages[2].get_by_role("row", name="most")).to_have_count(0)
        expect(links).to_have_text(["the job's query", "least"])
        page = own.open("/jobs/viewed/views/least/results")
        assert picker(page) == ["the job's query", "least"]
        ranged = client.get("/jobs/viewed/views/least?from=2026-01-31T11:00")
        assert ranged.headers["location"].startswith("/jobs/viewed/views/least?from=")


def test_the_preview_of_a_spec_names_the_view_that_it_shows(workshop_visits: Visits) -> None:
    page = workshop_visits.open("/new")
    write_spec(
        page.get_by_role("textbox", name="Spec"),
        "name: preview\nsource: {topic: t}\ncolumns: {name: STRING, v: INT}\n"
        f"views:\n  least: {{query: '{LEAST}'}}\n  most: {{query: '{MOST}'}}\n",
    )
    preview = page.get_by_role("region", name="Preview of the spec")
    title = preview.get_by_role("heading", name="Results")
    expect(title).to_have_text("Results of view least, the first of 2; all are checked")


def test_messages_of_a_view_are_checked_and_resent_from_its_page(workshop_visits: Visits) -> None:
    """There is no broker, so that the operation is only submitted."""
    own, job = workshop_visits, "refused-views"
    put_only_views(own.served, job)
    fits = b'{"type": "INSERT", "data": [{"name": "nut", "v": "1"}]}'
    unfit = b'{"type": "INSERT", "data": [{"name": "nut", "v": "x"}]}'
    ids = refuse(own.served, job, {"": fits, "least": unfit})
    page = own.open(f"/jobs/{job}")
    tabs = page.get_by_role("navigation", name=f"Pages of job {job}")
    tabs.get_by_role("link", name="Quarantine with 2 messages").click()
    rows = page.get_by_role("region", name="Messages in quarantine").locator("tbody tr")
    expect(rows).to_have_count(2)
    views = page.get_by_role("navigation", name=f"Views of job {job}")
    views.get_by_role("link", name="times with 1 message").click()
    expect(rows).to_have_count(1)
    assert_sound(page, "view-quarantine")
    tabs.get_by_role("link", name="Results").click()
    page.wait_for_url("**/views/times/results")
    page.go_back()
    page.get_by_label("Select all messages of this page").check()
    page.get_by_role("button", name="Resend selected").click()
    dialog = page.get_by_role("dialog", name="Resend the selected messages?")
    expect(dialog).to_contain_text("can process 1 of 1 messages now")
    dialog.get_by_role("button", name="Resend 1").click()
    page.wait_for_url("**/activity")
    operations = page.get_by_role("region", name="Operations").locator("tbody tr")
    expect(operations.first).to_contain_text(f"view times, {ids['']}")
    page.goto(f"/jobs/{job}/views/least/quarantine/{ids['']}")
    page.get_by_role("button", name="Resend unchanged").click()
    dialog = page.get_by_role("dialog", name="Resend unchanged?")
    dialog.get_by_role("button", name="Resend").click()
    expect(page.locator("#sent").get_by_text("Resending")).to_have_count(2)
