"""Pages on a telephone: nothing is wider than the screen, and no number breaks."""

from __future__ import annotations

import pytest

from tests.support.console.gallery import PAGES as GALLERY
from tests.support.console.gallery import WIDTHS
from tests.support.console.visits import Visits
from tests.support.sampling import quick

# The shop of the tests has no failed jobs.
PAGES = {name: path for name, path in GALLERY.items() if name not in ("retried", "failed")}
# Texts of numbers on more than one line.
BROKEN_NUMBERS = """() => {
  const broken = [];
  const texts = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const text = texts.currentNode;
    if (!/^[\\d.,]+$/.test(text.data.trim())) continue;
    const range = document.createRange();
    range.selectNodeContents(text);
    if (new Set([...range.getClientRects()].map(each => each.top)).size > 1) broken.push(text.data);
  }
  return broken;
}"""


@pytest.mark.parametrize("name", quick(PAGES, ["results", "quarantine"]))
def test_a_page_fits_a_telephone_and_no_number_breaks(visits: Visits, name: str) -> None:
    visits.expect("status of 404")
    page = visits.open(PAGES[name], width=WIDTHS[0])
    wide = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(wide) <= 0
    assert page.evaluate(BROKEN_NUMBERS) == []


@pytest.mark.parametrize("name", quick(["quarantine", "activity", "audit-log"], ["quarantine"]))
def test_a_table_that_does_not_fit_is_a_list_of_cards(visits: Visits, name: str) -> None:
    page = visits.open(PAGES[name], width=WIDTHS[0])
    inside = "e => e.scrollWidth - e.clientWidth"
    for table in page.locator("main .scroll").all():
        assert table.evaluate(inside) <= 0
