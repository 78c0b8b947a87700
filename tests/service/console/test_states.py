"""States on pages: what is retried, what starts, and what is not live; and the failures behind."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Browser, expect

from schemas.directory.reports import READY, StartPhase, StartProgress
from schemas.types.moments import now_ms
from service.console.job_view import JobView, label_state
from service.console.pages.jobs import list_phases
from service.supervision.jobs import describe_job
from service.supervision.register import Actual, Desired, FailureRecord, JobRecord, Register
from tests.support.console.shop import LATER_MS, Shop, failed
from tests.support.console.visits import Visits, assert_sound
from tests.support.service.served import Served

REASON = "the brokers of <i>shop</i> do not answer"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service with a job that is retried later, and one that failed for good, with a table."""
    data = tmp_path_factory.mktemp("states")
    retry_at = now_ms() + LATER_MS
    failed(data, "retried", reason=REASON, failure="failed", failures=3, retry_at=retry_at)
    failed(data, "broken", reason="the spec is wrong", failure="spec-misfit", failures=1)
    Shop(data, "broken", epochs_until_now=2).write({"bolt": (7,)})
    register = Register(data / "service" / "register.sqlite")
    for attempt in (1, 2, 3):
        register.add_failure(
            FailureRecord(
                job="retried",
                failed_at=retry_at - LATER_MS - 10_000 * (4 - attempt),
                began_at=retry_at - LATER_MS - 10_000 * (4 - attempt) - 2_500,
                attempt=attempt,
                code="failed",
                reason=REASON,
                stack=f"Traceback (most recent call last):\nKafkaError: attempt {attempt} <b>",
                retry_at=retry_at,
            )
        )
    register.close()
    with Served.start(data) as running:
        yield running


@pytest.fixture(autouse=True)
def postponed(served: Served) -> None:
    """Put the next try off, so that it is never due while a test looks at it."""
    register = Register(served.data / "service" / "register.sqlite")
    register.change_job("retried", retry_at=now_ms() + LATER_MS)
    register.close()


@pytest.fixture
def client(served: Served) -> httpx.Client:
    return served.client()


def test_a_retried_job_is_amber_with_its_attempt_and_reason_in_the_list(
    client: httpx.Client,
) -> None:
    text = client.get("/").text
    row = text.partition('id="job-retried"')[2].partition("</tr>")[0]
    assert '<span class="pill warn">retrying</span>' in row
    assert "attempt 4 at" in row and "the brokers of &lt;i&gt;shop" in row
    assert 'href="/jobs/retried"' in client.get("/?state=retrying").text
    assert 'href="/jobs/retried"' not in client.get("/?state=failed").text
    assert "Attempt 4 starts at" in client.get("/jobs/retried").text


def test_results_of_a_failed_job_are_not_live(client: httpx.Client) -> None:
    text = client.get("/jobs/broken/results").text
    assert ">live<" not in text
    assert '<span class="pill bad">failed</span>' in text and "newest epoch 1" in text
    assert "no such epoch" in client.get("/jobs/broken/results?as_of=epoch:99999").text


def test_failures_are_kept_with_their_stacks_attempt_by_attempt(
    served: Served, browser: Browser
) -> None:
    visits = Visits(browser, served)
    page = visits.open("/jobs/retried/activity")
    expect(page.get_by_text("3 failed attempts")).to_be_visible()
    newest = page.locator("details.failure").first
    expect(newest).to_contain_text("attempt 3")
    newest.locator("summary").click()
    expect(newest).to_contain_text("It failed 2.5 s after its start.")
    expect(page.get_by_label("Stack of attempt 3")).to_contain_text("KafkaError: attempt 3 <b>")
    assert_sound(page, "failures")
    visits.close()


def test_a_register_keeps_the_newest_failures_only(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    register = Register(tmp_path_factory.mktemp("kept") / "register.sqlite")
    for number in range(130):
        register.add_failure(
            FailureRecord(
                job="items",
                failed_at=number,
                began_at=None,
                attempt=number,
                code="died",
                reason="",
                stack="",
                retry_at=None,
            )
        )
    kept = register.list_failures("items", 1_000)
    assert [each.attempt for each in kept] == list(range(129, 29, -1))
    register.remove_job("items")
    assert register.list_failures("items", 1) == []
    register.close()


def view(**fields: object) -> JobView:
    known = {"desired": Desired.RUNNING, "actual": Actual.STARTING, "since": 0, **fields}
    record = JobRecord(name="items", revision=1, spec="{}", **known)  # type: ignore[arg-type]
    return JobView(record, "", describe_job(record, full=False), None, {}, lambda: None)


def test_a_start_is_shown_phase_by_phase() -> None:
    begins = [StartPhase(name, at) for name, at in [("topics", 3_000), ("table", 3_500)]]
    start = StartProgress(pid=7, phases=tuple(begins))
    phases = list_phases(view(pid=7, began_at=1_000), start, now_ms=5_000)
    assert [(each.status, each.seconds) for each in phases] == [
        ("done", 2.0),
        ("done", 0.5),
        ("running", 1.5),
        ("waiting", None),
        ("waiting", None),
        ("waiting", None),
    ]
    assert not start.ready
    loading = (*begins, StartPhase("snapshot", 4_000, "snapshot, 3 of 8 parts read"))
    phases = list_phases(view(pid=7, began_at=1_000), StartProgress(pid=7, phases=loading), 5_000)
    assert [(each.note, each.status) for each in phases][-2] == (loading[-1].progress, "running")
    older = StartProgress(pid=8, phases=tuple(begins))  # of the process before
    assert [each.status for each in list_phases(view(pid=7, began_at=1_000), older, 5_000)] == [
        "running",
        *["waiting"] * 5,
    ]
    ready = StartProgress(pid=7, phases=(*begins, StartPhase(READY, 4_000)))
    waiting = view(pid=7, began_at=1_000, actual=Actual.RUNNING)
    assert [each.status for each in list_phases(waiting, ready, 5_000)][-1] == "running"
    assert list_phases(view(actual=Actual.PAUSED), ready, 5_000) == []


def test_a_start_after_a_failure_is_a_retry_and_a_first_start_is_not() -> None:
    assert label_state(view().record) == "starting"
    assert label_state(view(failures=2).record) == "retrying"
    assert view().moving and view(actual=Actual.STOPPING, failures=2).moving
    assert not view(failures=2).moving
    assert not view(actual=Actual.FAILED, retry_at=LATER_MS).moving
    assert view(failures=2).tone == "warn"
    assert view(actual=Actual.FAILED).tone == "bad"
    assert view(actual=Actual.RUNNING, reason="no executor is left").tone == "warn"
    assert view(actual=Actual.RUNNING).tone == "good"
