"""An operation that fails inside the service ends, releases its job, and stops no other one."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from schemas.documents.answers import OperationState
from schemas.limits import OPERATION_SECONDS_MAX, REASON_CHARACTERS_MAX
from schemas.spec.connections import load_connections
from schemas.spec.file import load_spec, spec_text
from schemas.types.moments import now_ms
from schemas.types.sql_types import INT, STRING
from service.problems import Problem
from service.settings import Settings
from service.supervision.evolving import Evolver, Outcome
from service.supervision.jobs import JobCatalog
from service.supervision.operations import Operations, run_command
from service.supervision.register import Actual, Desired, JobRecord, OperationRecord, Register
from tests.support.tables.written_table import WrittenTable

QUERY = "SELECT name, SUM(v) AS total, MAX(v) AS top FROM t GROUP BY name"
OTHER = "SELECT name, SUM(v) AS total FROM t GROUP BY name"


class FailingEvolver(Evolver):
    """Raises an error for one job, as if this could not be foreseen."""

    job = ""

    def step(self, record: OperationRecord, *arguments: Any) -> Outcome | None:
        if record.job == self.job:
            raise RuntimeError("nobody has thought of this")
        return super().step(record, *arguments)


@dataclass(slots=True)
class Desk:
    """The operations of a service, whose thread does not run: a test makes each tick."""

    settings: Settings
    register: Register
    evolver: FailingEvolver
    operations: Operations

    def add_job(self, name: str, held_by: str | None = None) -> WrittenTable:
        written = WrittenTable(self.settings.data, QUERY, {"name": STRING, "v": INT}, name)
        written.epoch({("a",): (1, 5)})
        document = msgspec.json.encode(load_spec(written.place.spec).document()).decode()
        record = JobRecord(
            name=name,
            revision=1,
            spec=document,
            desired=Desired.RUNNING,
            actual=Actual.STOPPED,
            since=now_ms(),
            held_by=held_by,
        )
        self.register.add_job(record)
        return written

    def add_evolve(self, identity: str, job: str, began_at: int, *, spec: bool = True) -> None:
        """Add a running evolve, as a service before has left it."""
        if spec:
            document = {
                "name": job,
                "source": {"topic": "t"},
                "columns": {"name": "STRING", "v": "INT"},
                "query": OTHER,
            }
            file = self.settings.paths.home / "operations" / f"{identity}.in"
            file.write_text(spec_text(load_spec(document)))
        self.register.add_operation(
            OperationRecord(
                id=identity,
                job=job,
                kind="evolve",
                state="RUNNING",
                arguments=msgspec.json.encode({"state": "keep"}).decode(),
                created_at=began_at,
                began_at=began_at,
            )
        )

    def find(self, identity: str) -> OperationRecord:
        record = self.register.find_operation(identity)
        assert record is not None
        return record

    def find_holder(self, name: str) -> str | None:
        record = self.register.find_job(name)
        assert record is not None
        return record.held_by


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    settings = Settings(tmp_path, load_connections(None, "127.0.0.1:9"))
    (settings.paths.home / "operations").mkdir(parents=True)
    register = Register(settings.paths.register)
    evolver = FailingEvolver(register, JobCatalog(settings, register), lambda: None)
    yield Desk(
        settings,
        register,
        evolver,
        Operations(register, settings, evolver, lambda _record, _result: None),
    )
    register.close()


def long_ago() -> int:
    return now_ms() - int((OPERATION_SECONDS_MAX + 60) * 1_000)


def test_an_operation_that_raises_stops_no_other_and_is_logged_once(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    desk.add_job("items")
    desk.evolver.job = "items"
    desk.add_evolve("first", "items", now_ms() - 2)
    desk.add_evolve("second", "absent", now_ms() - 1)
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            desk.operations._tick()
    second = desk.find("second")
    assert (second.state, second.reason) == ("FAILED", "the job was deleted")
    assert desk.find("first").state == "RUNNING"
    logged = [each for each in caplog.records if "operation first" in each.getMessage()]
    assert len(logged) == 1 and logged[0].exc_info is not None


def test_an_operation_that_raises_until_its_deadline_ends_and_releases_its_job(desk: Desk) -> None:
    desk.add_job("items", held_by="first")
    desk.evolver.job = "items"
    desk.add_evolve("first", "items", long_ago())
    desk.operations._tick()
    first = desk.find("first")
    assert first.state == "FAILED"
    assert first.reason is not None and "nobody has thought of this" in first.reason
    assert desk.find_holder("items") is None


def test_a_reason_names_no_place_of_the_machine(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RETALLY_TABLES", "s3://bucket/of-ours/")
    desk.add_job("items")
    desk.add_evolve("first", "items", now_ms())
    desk.register.change_operation("first", kind="audit")  # as if its command had ended
    place = desk.settings.data / "jobs" / "items" / "epochs"
    errors = desk.settings.paths.home / "operations" / "first.err"
    errors.write_text(f"retally: {place} and s3://bucket/of-ours/items are gone{'!' * 900}\n")
    desk.operations._tick()
    first = desk.find("first")
    assert first.state == "FAILED" and first.reason is not None
    assert first.reason.startswith("DIR/jobs/items/epochs and TABLES/items are gone!")
    assert len(first.reason) == REASON_CHARACTERS_MAX


def test_the_reason_of_a_short_command_names_no_place_of_the_machine(desk: Desk) -> None:
    with pytest.raises(Problem) as failed:
        run_command(desk.settings, ["savepoint", "absent"])
    assert failed.value.code == "operation-failed" and "absent" in failed.value.detail
    assert str(desk.settings.data) not in failed.value.detail


def test_an_unreadable_table_is_a_problem_without_a_place_of_the_machine(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = desk.add_job("items")
    monkeypatch.setattr("jobs.reading.files.FORMAT_VERSION", 0)  # as if a newer retally wrote it
    catalog = JobCatalog(desk.settings, desk.register)
    with pytest.raises(Problem) as refused:
        catalog.compare(catalog.find_record("items"), load_spec(written.place.spec))
    assert refused.value.code == "table-unreadable"
    assert refused.value.detail.startswith("DIR/jobs/items/epochs has format version")
    assert str(desk.settings.data) not in refused.value.detail


def test_an_evolve_whose_spec_is_gone_releases_its_job(desk: Desk) -> None:
    desk.add_job("items", held_by="first")
    desk.add_evolve("first", "items", now_ms(), spec=False)
    desk.operations._tick()
    first = desk.find("first")
    assert first.state == "FAILED"
    assert first.reason is not None and "cannot read the spec" in first.reason
    assert "DIR/service/operations/first.in" in first.reason
    assert str(desk.settings.data) not in first.reason
    job = desk.register.find_job("items")
    assert job is not None
    assert (job.held_by, job.actual) == (None, "STARTING")


def test_an_evolve_whose_table_cannot_be_read_waits_until_its_deadline_and_releases_its_job(
    desk: Desk,
) -> None:
    written = desk.add_job("items", held_by="first")
    desk.add_evolve("first", "items", now_ms())
    for entry in (written.place.own_table / "_delta_log").glob("*.json"):
        entry.write_text("nonsense")
    desk.operations._tick()
    assert desk.find("first").state == "RUNNING"
    assert desk.find_holder("items") == "first"
    desk.register.change_operation("first", began_at=long_ago())
    desk.operations._tick()
    first = desk.find("first")
    assert first.state == "FAILED"
    assert first.reason is not None and first.reason.startswith("the table cannot be read")
    assert desk.find_holder("items") is None


def test_an_operation_of_a_state_is_found_behind_newer_ones(desk: Desk) -> None:
    desk.add_job("items")
    states: list[OperationState] = ["FAILED", "DONE", "DONE"]
    for number, state in enumerate(states):
        desk.register.add_operation(
            OperationRecord(
                id=f"{state}-{number}",
                job="items",
                kind="audit",
                state=state,
                arguments="{}",
                created_at=number,
            )
        )
    (newest,) = desk.register.list_operations("items", 1)
    (failed,) = desk.register.list_operations("items", 1, "FAILED")
    assert (newest.id, failed.id) == ("DONE-2", "FAILED-0")
