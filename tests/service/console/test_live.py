"""Live parts: they follow the service, leave alone what a person does, and survive its absence."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Locator, Page, expect

from schemas.limits import SHORT_COMMAND_SECONDS_MAX, WAIT_SECONDS_MAX
from service import console
from tests.support.console.living import PATIENCE_MS
from tests.support.console.shop import Shop, put
from tests.support.console.visits import Visits
from tests.support.service.served import Served


def living(visits: Visits, name: str) -> Shop:
    """A job of the test's own."""
    table = Shop(visits.served.data, name, epochs_until_now=3)
    table.write({"bolt": (7,)})
    put(visits.served, table)
    return table


def figure(page: Page, name: str) -> Locator:
    return page.locator(".figure", has=page.locator("dt", has_text=name)).locator("dd")


@pytest.mark.slow
def test_a_page_follows_its_job_without_being_loaded_again(workshop_visits: Visits) -> None:
    visits, table = workshop_visits, living(workshop_visits, "followed")
    page = visits.open("/jobs/followed")
    page.evaluate("() => { window.loadedOnce = true; }")
    expect(figure(page, "Groups")).to_contain_text("1")
    table.write({"bolt": (7,), "nut": (1,), "screw": (2,)})
    expect(figure(page, "Groups")).to_contain_text("3")
    assert page.evaluate("() => window.loadedOnce")


@pytest.mark.slow
def test_what_a_person_does_stays_while_figures_change(workshop_visits: Visits) -> None:
    visits, table = workshop_visits, living(workshop_visits, "touched")
    page = visits.open("/jobs/touched")
    page.get_by_role("button", name="Create savepoint").click()
    page.get_by_label("Name", exact=True).fill("before-imp")
    newest = table.write({"bolt": (8,)})
    expect(figure(page, "Epoch")).to_contain_text(str(newest))
    page.keyboard.type("ort")
    expect(page.get_by_label("Name", exact=True)).to_have_value("before-import")
    expect(page.get_by_label("Name", exact=True)).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    expect(page.get_by_role("button", name="Create savepoint")).to_be_focused()


@pytest.mark.slow
def test_an_open_dialog_stays_modal_when_what_was_before_it_goes(workshop_visits: Visits) -> None:
    living(workshop_visits, "asked")
    savepoints = "/v1/jobs/asked/savepoints"
    with workshop_visits.served.client() as client:
        for name in ("first", "second"):
            assert client.post(savepoints, json={"name": name}).status_code == 201
        page = workshop_visits.open("/jobs/asked")
        row = page.get_by_role("row", name="second")
        row.get_by_role("button", name="Delete savepoint").click()
        assert client.delete(f"{savepoints}/first").status_code == 204
    expect(page.locator("#savepoint-first")).to_have_count(0)
    assert page.locator("dialog:modal").count() == 1


def test_a_lost_connection_is_told_and_comes_back_by_itself(workshop_visits: Visits) -> None:
    visits = workshop_visits
    table = living(visits, "absent")
    visits.expect("ERR_CONNECTION_REFUSED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE")
    page = visits.open("/jobs/absent")
    waiting: set[str] = set()
    at_once: list[int] = []

    def asked(request: object) -> None:
        waiting.add(str(id(request)))
        at_once.append(len(waiting))

    page.on("request", asked)
    page.on("requestfinished", lambda request: waiting.discard(str(id(request))))
    page.on("requestfailed", lambda request: waiting.discard(str(id(request))))
    port = urlsplit(visits.served.address).port
    assert visits.served.stop() == 0
    banner = page.get_by_text("Connection lost, retrying.")
    expect(banner).to_be_visible()
    newest = table.write({"bolt": (9,)})
    page.wait_for_timeout(1_500)
    assert max(at_once) == 1  # they never pile up
    assert len(at_once) < 8
    visits.served.process = Served.start(table.place.data, "--port", str(port)).process
    expect(banner).to_be_hidden(timeout=PATIENCE_MS)
    expect(figure(page, "Epoch")).to_contain_text(str(newest), timeout=PATIENCE_MS)


@pytest.mark.slow
def test_a_failed_action_does_not_say_that_the_connection_is_lost(workshop_visits: Visits) -> None:
    visits = workshop_visits
    living(visits, "unsent")
    visits.expect("ERR_FAILED")
    page = visits.open("/jobs/unsent")
    page.route("**/v1/jobs/unsent/savepoints", lambda route: route.abort())
    page.get_by_role("button", name="Create savepoint").click()
    dialog = page.get_by_role("dialog", name="Create a savepoint of unsent")
    dialog.get_by_role("button", name="Create savepoint").click()
    expect(dialog.get_by_role("alert")).to_contain_text("The service does not respond")
    with page.expect_response(page.url):
        pass  # the page goes on being refreshed
    expect(page.locator("#connection")).to_be_hidden()


@pytest.mark.slow
def test_a_refresh_that_failed_is_repeated_on_a_page_that_is_not_live(
    workshop_visits: Visits,
) -> None:
    visits = workshop_visits
    living(visits, "repeated")
    visits.expect("ERR_FAILED")
    page = visits.open("/jobs/repeated/results?as_of=epoch:1")
    expect(page.locator("body")).to_have_attribute("data-refresh", "0")
    address = page.locator("script[type=module]").first.get_attribute("src")
    assert address is not None
    page.route(page.url, lambda route: route.abort(), times=1)
    lost = page.evaluate(
        """async (address) => {
          await (await import(address)).refresh();
          return !document.getElementById("connection").hidden;
        }""",
        address.replace("console.js", "live.js"),
    )
    assert lost
    expect(page.locator("#connection")).to_be_hidden()


@pytest.mark.parametrize(
    ("script", "name", "seconds"),
    [
        ("change.js", "CHANGE_MS", SHORT_COMMAND_SECONDS_MAX),
        ("rest.js", "WAIT_MS", WAIT_SECONDS_MAX),
    ],
)
def test_the_console_waits_longer_than_a_route_may_take(
    script: str, name: str, seconds: float
) -> None:
    text = (Path(console.__file__).parent / "assets" / script).read_text()
    found = re.search(rf"{name} = ([0-9_]+);", text)
    assert found is not None
    assert int(found[1]) > 1_000 * seconds


@pytest.mark.slow
def test_a_page_that_nobody_looks_at_asks_for_nothing(workshop_visits: Visits) -> None:
    page = workshop_visits.open("/login")
    page.clock.install()
    page.goto("/")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    with page.expect_response(page.url):
        page.clock.run_for(3_000)
    hide(page, True)
    page.clock.run_for(1_000)
    asked.clear()
    page.clock.run_for(60_000)
    assert asked == []
    with page.expect_response(page.url):
        hide(page, False)
    assert len(asked) == 1


@pytest.mark.slow
def test_a_page_that_became_live_goes_on_after_it_was_hidden(workshop_visits: Visits) -> None:
    visits = workshop_visits
    living(visits, "resumed")
    page = visits.open("/jobs/resumed/results?as_of=epoch:1")
    expect(page.locator("body")).to_have_attribute("data-refresh", "0")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    hide(page, True)
    hide(page, False)
    page.wait_for_timeout(300)
    assert asked == []  # it is not live yet
    page.evaluate("() => { document.body.dataset.refresh = '2000'; }")
    hide(page, True)
    with page.expect_response(page.url):
        hide(page, False)


def hide(page: Page, hidden: bool) -> None:
    """As where its tab is not the one that is shown."""
    page.evaluate(
        """(hidden) => {
          Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
          document.dispatchEvent(new Event("visibilitychange"));
        }""",
        hidden,
    )


@pytest.mark.slow
def test_a_job_that_is_deleted_elsewhere_is_said_to_be_gone(workshop_visits: Visits) -> None:
    visits = workshop_visits
    living(visits, "going")
    visits.expect("status of 404")
    page = visits.open("/jobs/going")
    with visits.served.client() as client:
        assert client.delete("/v1/jobs/going?data=keep").status_code == 204
    expect(page.get_by_role("heading", name="There is no such job or view")).to_be_visible()


@pytest.mark.slow
def test_a_chart_is_read_at_the_pointer(visits: Visits) -> None:
    page = visits.open("/jobs/items?span=1h")  # the shop's epochs may be older than 10 minutes
    plot = page.locator("#freshness .plot")
    box = plot.bounding_box()
    assert box is not None
    line = plot.locator("path.line").bounding_box()
    assert line is not None
    page.mouse.move(line["x"] + line["width"] / 2, box["y"] + 20)
    reading = plot.locator(".reading")
    expect(reading).to_contain_text("ms")
    page.mouse.move(10, 10)
    expect(reading).to_have_count(0)


@pytest.mark.slow
def test_a_page_of_another_version_of_the_service_is_loaded_again(visits: Visits) -> None:
    page = visits.open("/")
    page.evaluate(
        """() => {
          window.loadedOnce = true;
          document.querySelector("meta[name=digest]").content = "of before";
        }"""
    )
    page.wait_for_function("() => window.loadedOnce === undefined")
    expect(page.get_by_role("heading", name="Jobs")).to_be_visible()


MORPHS = """async (address) => {
  const { morph } = await import(address);
  let state = 7;
  const random = (below) => (state = (state * 48271) % 2147483647) % below;
  const tree = (depth) => {
    const made = document.createElement(["p", "div", "span"][random(3)]);
    const names = ["a", "b", "c", "d", "e", "f"].sort(() => random(3) - 1).slice(0, random(6));
    for (const name of names) {
      if (random(4) === 0) made.append(`text ${random(3)}`);
      const child = depth > 0 ? tree(depth - 1) : document.createElement("b");
      if (random(3) > 0) child.id = `${name}${depth}`;
      if (random(2) === 0) child.className = `kind-${random(3)}`;
      if (depth === 0) child.textContent = String(random(5));
      made.append(child);
    }
    return made;
  };
  for (let turn = 0; turn < 500; turn += 1) {
    const old = document.createElement("section");
    old.append(tree(2));
    const fresh = document.createElement("section");
    fresh.append(tree(2));
    const before = old.outerHTML;
    morph(old, fresh);
    if (!old.isEqualNode(fresh)) return [before, fresh.outerHTML, old.outerHTML];
  }
  return null;
}"""


@pytest.mark.slow
def test_a_part_becomes_what_it_is_to_be_from_whatever_it_was(visits: Visits) -> None:
    page = visits.open("/")
    address = page.locator("script[type=module]").first.get_attribute("src")
    assert address is not None
    failed = page.evaluate(MORPHS, address.replace("console.js", "morph.js"))
    assert failed is None, failed


@pytest.mark.slow
def test_what_moves_within_a_part_is_the_same_element(visits: Visits) -> None:
    page = visits.open("/")
    address = page.locator("script[type=module]").first.get_attribute("src")
    assert address is not None
    kept = page.evaluate(
        """async (address) => {
          const { morph } = await import(address);
          const list = (...names) => {
            const made = document.createElement("ul");
            for (const name of names) {
              const item = document.createElement("li");
              item.id = name;
              made.append(item);
            }
            return made;
          };
          const old = list("a", "b", "c");
          const [a, b, c] = old.children;
          morph(old, list("new", "c", "a"));
          return [old.children[1] === c, old.children[2] === a, b.isConnected];
        }""",
        address.replace("console.js", "morph.js"),
    )
    assert kept == [True, True, False]
