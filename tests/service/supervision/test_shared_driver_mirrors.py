"""Jobs and views of one shared Spark JVM keep their mirrors, over the end of this JVM."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from jobs.edge.process.broker import Broker
from schemas.directory.paths import JobDirectory
from tests.support.service.crew import Crew, Member, crew_of
from tests.support.service.served import eventually

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.faults, pytest.mark.timeout(580)]


@pytest.fixture
def crew(broker: Broker, topic: str, tmp_path: Path) -> Iterator[Crew]:
    (tmp_path / "data").mkdir()
    with crew_of(broker, topic, tmp_path, 3) as running:
        yield running


def test_jobs_with_views_and_with_mirrors_share_a_jvm_and_are_exact_over_its_kill(
    crew: Crew,
) -> None:
    mirrored = [crew.add(0, mirror="100ms"), crew.add(2, mirror="100ms")]
    members = [*mirrored, crew.add_views("view-0")]
    crew.must_go_on(members)
    assert len(crew.owners) == 1
    for member in members:
        must_be_mirrored(crew, member, after=0)
    jvm, pids = crew.jvm, [crew.pid(each) for each in members]
    for member in members:
        member.send(100)
    jvm.kill()
    for member, before in zip(members, pids, strict=True):
        crew.pid(member, other_than=before)
    epochs = [member.job.epochs()[-1].epoch for member in members]
    crew.must_go_on(members)
    assert len(crew.owners) == 1
    # A start refreshes the mirror at once, then so seldom that it takes a twentieth of the time.
    for member, epoch in zip(members, epochs, strict=True):
        must_be_mirrored(crew, member, after=epoch - 1)
    crew.must_end_exactly(members)


def must_be_mirrored(crew: Crew, member: Member, after: int) -> None:
    """Wait until a mirror is of an epoch later than `after`; it has the results of this epoch."""
    view = "view-0" if member.query is None else ""
    path = JobDirectory(crew.home / "data", member.name, view).results
    found: tuple[int, list[str]] = eventually(
        lambda: (read := read_mirror(path)) is not None and read[0] > after and read, 240
    )
    epoch, rows = found
    words = ["results", member.name, "--epoch", str(epoch), *(["--view", view] if view else [])]
    assert rows == sorted(str(sorted(each.items())) for each in member.job.ask(*words)), epoch


def read_mirror(path: Path) -> tuple[int, list[str]] | None:
    """Return the epoch of a mirror, and its rows."""
    try:
        table = DeltaTable(str(path))
    except TableNotFoundError:
        return None
    epoch = json.loads(table.history(1)[0]["userMetadata"])["epoch"]
    return epoch, sorted(str(sorted(row.items())) for row in table.to_pyarrow_table().to_pylist())
