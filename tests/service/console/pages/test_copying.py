"""Copy buttons in a browser: what they copy, also without a clipboard of the page's own."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.support.console.visits import Visits, assert_sound

pytestmark = pytest.mark.slow

# Each with the button's name and the text that it copies, or its beginning.
COPIED = {
    "/jobs/items/results/bolt": ("Copy the key", "bolt"),
    "/jobs/items/spec": ("Copy the spec", "name: items\n"),
    "/jobs/items/quarantine/60-t-0-600": (
        "Copy Text of the message",
        '{"type": "INSERT", "data": ',
    ),
    "/sql?q=SELECT+1": ("Copy the statement", "SELECT 1"),
}


def copy(page: Page, name: str) -> None:
    page.get_by_role("button", name=name).click()
    expect(page.get_by_role("button", name=name.replace("Copy", "Copied"))).to_be_visible()


@pytest.mark.parametrize("path", COPIED)
def test_a_button_copies_the_text_beside_it(visits: Visits, path: str) -> None:
    name, text = COPIED[path]
    page = visits.open(path)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    copy(page, name)
    assert page.evaluate("navigator.clipboard.readText()").startswith(text)
    assert_sound(page)


def test_without_tls_a_page_copies_what_it_selects(visits: Visits) -> None:
    page = visits.open("/rest")
    page.evaluate("delete Navigator.prototype.clipboard")
    page.locator("#get-v1-jobs summary").click()
    copy(page, "Copy Command for /v1/jobs")
    page.evaluate("document.body.prepend(document.createElement('input'))")
    page.locator("body > input").press("Control+v")
    expect(page.locator("body > input")).to_have_value(f"curl {visits.served.address}/v1/jobs")
