"""A view with windows that close comes to a job whose watermark has passed some of them."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.changing.evolve import activate_replay, prepare_replay
from schemas.spec.file import load_spec
from tests.support.jobs.epochs_by_hand import ByHand, EpochsByHand, of_view
from tests.support.jobs.windowed_views import KEYS, WINDOWS, at
from tests.support.sampling import quick

COUNTS = "SELECT k, COUNT(*) AS n FROM t GROUP BY k"


@pytest.mark.parametrize("emit", quick(["final", "changes"], ["final"]))
def test_windows_of_a_new_view_close_as_in_a_job_that_had_it_from_the_start(
    emit: str, by_hand: ByHand
) -> None:
    windows = {**WINDOWS, "emit": emit, "allowed_lateness": "0s"}
    document = {"counts": COUNTS, "windows": windows}
    job = by_hand.views({"counts": COUNTS}, **KEYS, at="one")
    first = by_hand.views(document, **KEYS, at="both")
    job.epoch_of([(0, at(s)) for s in (1, 4, 12, 13, 25)])
    first.epoch()
    job.replay(first.spec)
    seen, wanted = job.at_view("windows"), first.at_view("windows")
    assert seen.results() == wanted.results()
    assert len(seen.results()) == (2 if emit == "final" else 3)
    for seconds in ((26, 31), (44, 3), (60, 45)):
        job.epoch_of([(0, at(s)) for s in seconds])
        first.epoch()
        assert seen.results() == wanted.results()
        epochs = [each.epochs()[-1].epoch for each in (job, first)]
        changed = [
            sorted(each.lines(epoch)) for each, epoch in zip((seen, wanted), epochs, strict=True)
        ]
        assert changed[0] == changed[1]
        assert job.at_view("counts").results() == first.at_view("counts").results()


@pytest.mark.slow
@pytest.mark.parametrize("emit", ["final", "changes"])
def test_windows_come_to_a_job_that_has_read_nothing_but_knows_the_time(
    emit: str, by_hand: ByHand
) -> None:
    keys = {**KEYS, "watermark": {**KEYS["watermark"], "idle_after": "30s"}}
    job = by_hand.views({"counts": COUNTS}, **keys)
    job.now_ms = 1
    job.restart()
    assert job.time_epoch(60_000).watermarks
    views = {
        "counts": of_view(COUNTS),
        "windows": {**WINDOWS, "emit": emit, "allowed_lateness": "0s"},
    }
    spec = load_spec(job.spec.document() | {"views": views})
    prepare_replay(job.place.at_view(""), spec)  # there is nothing to read up to
    activate_replay(job.place.at_view(""), spec)
    job.go_on(spec)
    job.epoch_of([(0, at(s)) for s in (1, 25)])
    assert len(job.at_view("windows").results()) == (1 if emit == "final" else 2)


@pytest.mark.slow
def test_an_audit_of_a_new_view_with_windows_counts_the_late_rows_of_the_replay(
    by_hand: ByHand,
) -> None:
    windows = {**WINDOWS, "emit": "changes", "allowed_lateness": "0s"}
    job = by_hand.views({"counts": COUNTS}, **KEYS)
    counts = of_view(COUNTS)
    job.epoch_of([(0, at(s)) for s in (1, 25)])
    job.epoch_of([(0, at(2)), (0, at(26))])
    spec = load_spec(job.spec.document() | {"views": {"counts": counts, "windows": windows}})
    place = job.place.at_view("")
    made = prepare_replay(place, spec)
    shadow = EpochsByHand(job.spark, job.brokers, made.shadow.data, made.spec)
    assert made.goal is not None
    shadow.epoch({by_hand.topic: {"0": 2}})
    shadow.epoch(made.goal)
    activate_replay(place, spec)
    job.go_on(spec)
    job.epoch_of([(0, at(3)), (0, at(27))])
    seen = job.at_view("windows")
    assert [each["offset"] for each in seen.late()] == [2, 4]
    assert [each.counts.late_windows for each in seen.epochs()] == [0, 0, 0, 1, 1]
    assert job.audit("windows").verdict == "equal"

    # Its query changes: the late rows are those of another replay.
    other = str(WINDOWS["query"]).replace("'10'", "'20'")
    changed = load_spec(
        job.spec.document() | {"views": {"counts": counts, "windows": {**windows, "query": other}}}
    )
    job.replay(changed)
    assert [each["offset"] for each in job.at_view("windows").late()] == []
    assert job.audit("windows").verdict == "equal"


DROPS: dict[str, Any] = {"early_retractions": "drop"}


@pytest.mark.parametrize("replayed", quick([True, False], [True]))
def test_an_audit_of_a_new_view_knows_the_errors_of_the_source_before_it(
    replayed: bool, by_hand: ByHand
) -> None:
    job = by_hand.views({"counts": COUNTS}, **KEYS, **DROPS)
    job.epoch_of([(0, at(1).replace(b"INSERT", b"DELETE"))])
    query = "SELECT COUNT(*) AS n FROM t" if replayed else COUNTS.replace("AS n", "AS m")
    views = {name: of_view(text) for name, text in (("counts", COUNTS), ("new", query))}
    spec = load_spec(job.spec.document() | {"views": views})
    if replayed:
        job.replay(spec)
    else:
        job.evolve(spec)
    job.epoch_of([(0, at(1))])
    for name in views:
        report = job.audit(name)
        assert (report.verdict, report.odd) == ("undecided", {"dropped_retractions": 1}), name
