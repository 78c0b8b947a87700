"""From an empty console to results, with a real broker and a real job, by a browser alone."""

from __future__ import annotations

import re
import time
import uuid
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from jobs.edge.process.broker import Broker
from tests.support.command.shop import COLUMNS, QUERY, Shop
from tests.support.console.visits import Visits, assert_sound, write_spec
from tests.support.service.served import Served, end_jobs, eventually

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

PATIENCE_MS = 120_000


def test_a_job_is_written_tried_started_and_seen_to_run(
    browser: Browser, broker: Broker, tmp_path: Path
) -> None:
    shop = Shop(broker.address, f"shop-{uuid.uuid4().hex[:8]}", seed=5)
    shop.feed(60)
    time.sleep(0.05)
    shop.feed(0)  # one message that is none, and the newest
    visits = Visits(browser, Served.start(tmp_path, brokers=broker.address))
    try:
        page = visits.open("/new")
        page.get_by_label("or from a topic").fill(shop.topic[:-1])
        page.get_by_role("button", name="Suggest a spec").click()
        expect(page.get_by_text(f"known topics: {shop.topic}")).to_be_visible()
        page.get_by_label("or from a topic").fill(shop.topic)
        page.get_by_role("button", name="Suggest a spec").click()
        spec = page.get_by_role("textbox", name="Spec")
        suggested = re.compile(r"columns:\n  name: STRING\n  cnt: BIGINT")
        expect(page.locator("#spec")).to_have_value(suggested)
        write_spec(
            spec,
            f"name: items\nsource: {{topic: {shop.topic}}}\ncolumns: {COLUMNS}\nquery: {QUERY}\n",
        )
        page.get_by_role("button", name="Run", exact=True).click()
        trial = page.get_by_role("region", name="Trial run on the newest messages")
        expect(trial).to_contain_text("rejected", timeout=15_000)  # the one that is none
        expect(trial.locator(".op").first).to_be_visible()
        assert_sound(page, "trial")
        page.get_by_label("start the job immediately").check()
        page.get_by_role("button", name="Create the job").click()
        expect(page.locator("#state")).to_contain_text("running", timeout=PATIENCE_MS)
        groups = page.locator(".figure", has=page.locator("dt", has_text="Groups")).locator("dd")
        expect(groups).to_contain_text(str(len(shop.truth())), timeout=PATIENCE_MS)
        expect(page.locator("#epochs")).to_contain_text("read and decode")
        expect(page.locator("#lag .plot")).to_be_visible(timeout=20_000)
        assert_sound(page, "running")
        page.get_by_role("button", name="Stop").click()
        page.get_by_role("dialog").get_by_role("button", name="Stop job").click()
        eventually(lambda: visits.served.job("items")["actual"] == "STOPPED", 60)
        visits.close()
    finally:
        shop.close()
        assert visits.served.stop() == 0
        end_jobs(tmp_path)
