"""The lists of jobs and topics in a browser: sorted by a click on a heading, and searched."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from service.console.rows import Column, sort_table
from tests.support.console.visits import Visits, assert_sound

SPEC = {"columns": {"k": "STRING"}, "query": "SELECT k, COUNT(*) AS n FROM t GROUP BY k"}


def test_unknown_values_are_last_in_both_orders() -> None:
    columns = (
        Column("name", "Name", lambda row: row[0]),
        Column("n", "N", lambda row: row[1], "num"),
    )
    rows = [("a", None), ("b", 2), ("c", 10)]

    def names(order: str) -> str:
        return "".join(row[0] for row in sort_table(columns, rows, order)[1])

    assert [names(order) for order in ("n", "-n", "-name", "", "other")] == [
        "bca",
        "cba",
        "cba",
        "abc",
        "abc",
    ]
    clicks = [""]
    for _ in range(3):
        headings, _ = sort_table(columns, rows, clicks[-1], find="x")
        assert headings[1].query.startswith("?find=x")
        clicks.append(headings[1].query.partition("order=")[2])
    assert clicks == ["", "-n", "n", ""]


def names(page: Page) -> list[str]:
    return page.locator(".jobs tbody th a:not(.pill)").all_text_contents()


@pytest.mark.slow
def test_jobs_are_sorted_by_a_cell_and_found_by_their_topics(workshop_visits: Visits) -> None:
    with workshop_visits.served.client() as client:
        for name, topic in (("sorted-b", "apples"), ("sorted-a", "pears"), ("sorted-c", "apples")):
            labels = ["fruit", name.removeprefix("sorted-")] if topic == "apples" else []
            spec = {**SPEC, "name": name, "source": {"topic": topic}, "labels": labels}
            assert client.put(f"/v1/jobs/{name}", json=spec).status_code == 201
    page = workshop_visits.open("/")
    page.get_by_role("searchbox").fill("APPLES")
    page.keyboard.press("Enter")
    expect(page.locator(".jobs tbody tr")).to_have_count(2)
    heading = page.get_by_role("columnheader", name="Job", exact=True)
    box = heading.bounding_box()
    assert box is not None
    for order, found in (("ascending", ["b", "c"]), ("descending", ["c", "b"])):
        # In a corner of the cell, beside its text.
        heading.click(position={"x": box["width"] - 3, "y": box["height"] - 3})
        expect(heading).to_have_attribute("aria-sort", order)
        assert names(page) == [f"sorted-{each}" for each in found]
    expect(page.get_by_role("searchbox")).to_have_value("APPLES")
    assert_sound(page, "jobs-sorted")
    page.goto("/?find=pears")
    expect(page.locator(".jobs tbody tr")).to_have_count(1)
    page.goto("/?find=sorted-c")
    page.get_by_role("link", name="Jobs with the label fruit").click()
    expect(page.locator(".jobs tbody tr")).to_have_count(2)
    assert names(page) == ["sorted-b", "sorted-c"]
