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


@pytest.mark.parametrize("value", ["2026-01-02 09:03:25.167", "9" * 200], ids=["time", "long"])
def test_values_of_a_multiset_fit_a_telephone(visits: Visits, value: str) -> None:
    page = visits.open(PAGES["group"], width=WIDTHS[0])
    page.locator(".history details").evaluate_all("all => all.forEach(each => each.open = true)")
    values = page.locator(".history .sides code")
    assert values.count() > 0
    values.evaluate_all("(all, value) => all.forEach(each => { each.textContent = value; })", value)
    wide = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(wide) <= 0


def test_a_number_beside_a_long_name_does_not_break(visits: Visits) -> None:
    page = visits.open(PAGES["group"], width=WIDTHS[0])
    rename = (
        "all => all.forEach(each => { each.textContent = 'messages skipped (DDL, tombstones)'; })"
    )
    page.locator("dl.pairs dt").evaluate_all(rename)
    page.locator("dl.pairs dd").evaluate_all(
        "all => all.forEach(e => { e.textContent = '21,600'; })"
    )
    assert page.evaluate(BROKEN_NUMBERS) == []


def test_a_change_of_a_long_value_flows_over_two_lines(visits: Visits) -> None:
    page = visits.open(PAGES["changes"], width=WIDTHS[0])
    values = page.locator(".changes td:has(.from) .shown")
    values.first.wait_for()
    values.evaluate_all(
        "all => all.forEach(each => { each.textContent = '2026-01-02 09:03:25.167';"
        " each.closest('td').classList.remove('num'); })"
    )
    height = "e => e.getBoundingClientRect().height / parseFloat(getComputedStyle(e).lineHeight)"
    assert page.locator(".changes .from").first.evaluate(height) < 2.5
    outside = "all => all.filter(e => e.scrollWidth > e.clientWidth).length"
    assert page.locator(".changes tbody tr").evaluate_all(outside) == 0
