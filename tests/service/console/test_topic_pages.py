"""Topics in a browser: from a topic to a job that reads it; and the lineage of jobs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from jobs.edge.kafka.admin import KafkaAdmin
from jobs.edge.process.broker import Broker
from service.console.pictures.lineage import JobTopics, draw_lineage
from tests.support.console.visits import Visits, assert_sound
from tests.support.jobs.running_job import produce
from tests.support.service.served import Served


def place(topic: str) -> tuple[str, str]:
    return ("default", topic)


def test_jobs_stand_after_the_topics_that_they_read() -> None:
    jobs = [
        JobTopics("ages", (place("items-changes"),), (), ""),
        JobTopics("items", (place("shop"), place("stock")), (place("items-changes"),), ""),
    ]
    lineage = draw_lineage(jobs)
    assert lineage is not None
    across = {node.name: node.x for node in lineage.nodes}
    assert across["shop"] == across["stock"] < across["items"] < across["items-changes"]
    assert across["items-changes"] < across["ages"]
    assert len(lineage.arrows) == 4
    assert [job.name for job in lineage.jobs] == ["items", "ages"]
    assert "items feeds items-changes; " in f"{lineage.description}; "
    assert draw_lineage(jobs[:1]) is None


def test_a_job_stands_beside_the_topic_that_it_reads() -> None:
    jobs = [
        JobTopics("early", (place("z"),), (place("from-z"),), ""),
        JobTopics("late", (place("a"),), (place("from-a"),), ""),
    ]
    lineage = draw_lineage(jobs)
    assert lineage is not None
    down = {node.name: node.y for node in lineage.nodes}
    assert down["a"] == down["late"] == down["from-a"] < down["z"]
    assert down["z"] == down["early"] == down["from-z"] < lineage.height


def test_a_job_writes_its_progress_beside_its_changes() -> None:
    job = JobTopics("items", (place("shop"),), (place("items-changes"),), "")
    names = ("items-changes", "items-changes-progress", "items-changes-shares")
    assert job.written == set(map(place, names))
    lineage = draw_lineage([job, JobTopics("ages", (place("items-changes"),), (), "")])
    assert lineage is not None
    assert place("items-changes-progress")[1] not in {node.name for node in lineage.nodes}


def test_jobs_in_a_circle_are_drawn_too() -> None:
    circle = [
        JobTopics("one", (place("b"),), (place("a"),), ""),
        JobTopics("two", (place("a"),), (place("b"),), ""),
    ]
    lineage = draw_lineage(circle)
    assert lineage is not None and len({node.name for node in lineage.nodes}) == 4
    assert lineage.width < 3_000


@pytest.mark.slow
def test_lineage_leads_to_the_jobs_and_topics_at_every_width(workshop_visits: Visits) -> None:
    up = {"columns": {"k": "STRING"}, "query": "SELECT k, COUNT(*) AS n FROM t GROUP BY k"}
    up |= {"source": {"topic": "lineage-source"}, "sink": {"topic": "lineage-changes"}}
    down = {"columns": {"n": "BIGINT"}, "query": "SELECT n, COUNT(*) AS ks FROM t GROUP BY n"}
    down |= {"source": {"topic": "lineage-changes", "format": "changelog-json"}}
    with workshop_visits.served.client() as client:
        for name, spec in (("lineage-down", down), ("lineage-up", up)):
            made = client.put(f"/v1/jobs/{name}", json={"name": name, **spec})
            assert made.status_code == 201, made.text
    workshop_visits.expect("status of 503")  # there is no broker behind the topic's page
    between = "/topics/lineage-changes?connection=default"
    targets = {
        "lineage-up": "/jobs/lineage-up",
        "lineage-changes": between,
        "lineage-down": "/jobs/lineage-down",
    }
    for width, shown, hidden in ((1440, "svg.lineage", "list"), (390, ".lineage-list", "graph")):
        page = workshop_visits.open("/", width=width)
        assert_sound(page, f"lineage-{width}")
        expect(page.locator(f".lineage-{hidden}")).to_be_hidden()
        for name, target in targets.items():
            link = page.locator(f'{shown} a[href="{target}"]').first
            expect(link).to_contain_text(name)
            link.click()
            page.wait_for_url(f"**{target}")
            page.goto("/")


@pytest.mark.slow
@pytest.mark.broker
def test_a_topic_leads_to_a_job_that_reads_it(
    browser: Browser, broker: Broker, topic: str, tmp_path: Path
) -> None:
    with KafkaAdmin({"bootstrap_servers": broker.address}) as admin:
        admin.ensure_topic(topic, 1, {})
    message = {
        "type": "INSERT",
        "database": "shop",
        "table": "product",
        "pkNames": ["id"],
        "mysqlType": {"id": "bigint", "name": "varchar(9)", "cnt": "int"},
        "data": [{"id": "1", "name": "<b>bolt", "cnt": "3"}],
    }
    produce(broker.address, topic, [(0, json.dumps(message).encode())])
    visits = Visits(browser, Served.start(tmp_path, brokers=broker.address))
    try:
        page = visits.open("/")
        page.get_by_role("link", name="Topics", exact=True).click()
        page.get_by_role("link", name=topic).click()
        expect(page.get_by_role("region", name="Offsets of the partitions")).to_contain_text("1")
        expect(page.get_by_label("Suggested spec")).to_contain_text("name: STRING")
        assert_sound(page, "topic")
        page.get_by_role("link", name="New job from this topic").click()
        expect(page.get_by_role("textbox", name="Spec")).to_contain_text("format: canal-json")
        page.get_by_role("button", name="Run", exact=True).click()
        expect(page.get_by_text("name=<b>bolt").first).to_be_visible()  # in the message's line
        page.get_by_role("button", name="Create the job").click()
        page.wait_for_url("**/jobs/*")
        page.goto("/topics")
        page.get_by_role("searchbox").fill(topic.upper())
        page.keyboard.press("Enter")
        page.get_by_role("columnheader", name="Records").click()
        expect(page.get_by_role("columnheader", name="Records")).to_have_attribute(
            "aria-sort", "descending"
        )
        row = page.get_by_role("row", name=topic)
        assert_sound(page, "topics")
        expect(row.get_by_role("link")).to_have_count(2)  # the topic, and the job that reads it
        visits.close()
    finally:
        assert visits.served.stop() == 0
