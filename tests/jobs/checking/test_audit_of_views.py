"""The audit of a job with views: equal as long as each view is, and a damaged view is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

import retally
from jobs.edge.process.broker import Broker
from jobs.edge.process.job_directory import JobDirectory
from tests.support.histories.products import history
from tests.support.jobs.running_job import RunningJob, produce
from tests.support.jobs.shop_views import VIEWS, damage_results, make_shop_views
from tests.support.service.served import Served, eventually

pytestmark = pytest.mark.spark


@pytest.mark.slow  # an audit of joins names the damaged view as well
def test_the_audit_of_all_views_names_the_damaged_one_and_only_that(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    job = _run_shop_views(broker, topic, tmp_path)
    damage_results(JobDirectory(job.data, "items", "view-2"), "n_2")
    (found,) = job.ask("audit", "items", "--brokers", broker.address, code=1)
    assert (found["job"], tuple(found["views"])) == ("items", VIEWS)
    assert {each["epoch"] for each in found["views"].values()} == {found["epoch"]}
    groups = {view: len(job.ask("results", "items", "--view", view)) for view in VIEWS}
    assert {view: each["groups"] for view, each in found["views"].items()} == groups
    assert found["groups"] == sum(groups.values())
    _must_name_the_damage(found)


@pytest.mark.slow
def test_one_view_is_audited_alone_and_a_service_audits_all_or_one(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    job = _run_shop_views(broker, topic, tmp_path)
    damage_results(JobDirectory(job.data, "items", "view-2"), "n_2")
    brokers = ("--brokers", broker.address)
    (found,) = job.ask("audit", "items", *brokers, code=1)
    assert job.ask("audit", "items.view-0", *brokers) == [found["views"]["view-0"]]
    damaged = job.ask("audit", "items", "--view", "view-2", *brokers, code=1)
    assert damaged == [found["views"]["view-2"]]
    _check_service(job)


def _run_shop_views(broker: Broker, topic: str, home: Path) -> RunningJob:
    job = make_shop_views(broker.address, topic, home)
    made = history(22, 120)
    produce(broker.address, topic, ((each.partition, each.value) for each in made.messages))
    job.must_run()
    return job


def _must_name_the_damage(found: dict[str, Any]) -> None:
    """The whole is different because of view-2, whose only group has a count too many."""
    verdicts = {view: each["verdict"] for view, each in found["views"].items()}
    assert verdicts == {"view-0": "equal", "view-1": "equal", "view-2": "different"}
    assert (found["verdict"], found["differing"]) == ("different", 1)
    (difference,) = found["views"]["view-2"]["differences"]
    assert difference["table"]["n_2"] == difference["recomputed"]["n_2"] + 1


def _check_service(job: RunningJob) -> None:
    """A service audits all views or one, as operations of the job; pages have the reports."""
    with Served.start(job.data, brokers=job.brokers) as served, served.client() as pages:
        assert pages.put("/v1/jobs/items", json=job.spec).status_code == 201
        eventually(lambda: served.job("items")["epoch"])
        client = retally.connect(served.address)
        whole = client.wait_until_ended(client.audit("items"))
        assert (whole.job, whole.state) == ("items", "DONE")
        _must_name_the_damage(whole.result or {})
        one = client.wait_until_ended(client.audit("items.view-2"))
        assert (one.job, one.arguments) == ("items", {"view": "view-2"})
        assert one.result == (whole.result or {})["views"]["view-2"]
        _check_pages(pages, whole.id, one.id)


def _check_pages(pages: httpx.Client, whole: str, one: str) -> None:
    listed = pages.get("/jobs/items/activity").text
    assert "view view-2" in listed
    report = pages.get(f"/jobs/items/activity/{whole}").text
    for title in ("view-0: Equal", "view-1: Equal", "view-2: Different"):
        assert title in report, title
    for page in (report, pages.get(f"/jobs/items/activity/{one}").text):
        assert 'href="/jobs/items/views/view-2/results/' in page
