"""The quarantine of a job with views after a replay: no message is lost, and none counts twice."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from jobs.changing.clone import clone
from jobs.changing.evolve import CannotEvolve, evolve
from jobs.changing.quarantine_replay import CannotReplay
from jobs.changing.quarantine_replay import replay as send_again
from jobs.edge.kafka.admin import KafkaAdmin
from jobs.edge.table.reading import TableReader
from jobs.edge.table.retention import expire_history
from jobs.reading.parts import QUARANTINE
from jobs.reading.version import TableVersion
from schemas.directory.paths import JobDirectory
from schemas.directory.quarantine import QuarantineRow, identity_of
from schemas.spec.connections import load_connections
from schemas.spec.file import load_spec
from schemas.spec.job import JobSpec
from tests.support.jobs.canal_messages import insert, row
from tests.support.jobs.epochs_by_hand import ByHand, EpochsByHand, of_view

BY_KEY = "SELECT k, COUNT(*) AS n FROM t GROUP BY k"
WHOLE = "SELECT COUNT(*) AS times FROM t"
NUMBERS = "SELECT k, SUM(CAST(v AS INT)) AS s FROM t GROUP BY k"
TIMED: dict[str, Any] = {
    "columns": {"k": "STRING", "t": "TIMESTAMP(3)"},
    "watermark": {"time": {"column": "t"}, "delay": "1s", "future_skew": "1m"},
}
LONG_AFTER_US = 10**18
EARLY_MS = 10_000  # the time of the hour 00:10 is then in the future


def with_keys(job: EpochsByHand, **keys: Any) -> JobSpec:
    return load_spec(job.spec.document() | keys)


def timed(k: str) -> bytes:
    data = {"k": k, "t": "1970-01-01 00:10:00.000"}
    return json.dumps({"type": "INSERT", "data": [data]}).encode()


def expire(job: EpochsByHand, epoch: int) -> None:
    """Remove the history up to an epoch, as if it were older than the job's retention."""
    table = job.pipeline.table
    old = expire_history(table, LONG_AFTER_US, epoch, uuid4().hex)
    assert old is not None and old.epoch_max == epoch
    table.commit(old.added, old.removed, uuid=uuid4().hex, what="retention")
    job.restart()


def results(job: EpochsByHand, name: str) -> dict[Any, Any]:
    return TableReader.open(job.at_view(name).place).results()


def listed(job: EpochsByHand) -> list[tuple[int, int, str]]:
    return [(each["epoch"], each["offset"], each["quarantine_code"]) for each in job.quarantine()]


def test_what_no_view_decodes_any_more_is_in_the_quarantine_of_all(by_hand: ByHand) -> None:
    columns = {"k": "STRING"}
    job = by_hand.views({"by-key": BY_KEY}, columns=columns, max_bad_fraction=1.0)
    bad = {"type": "INSERT", "data": [{"k": "b", "w": "seven"}]}
    good = {"type": "INSERT", "data": [{"k": "a", "w": "7"}]}
    job.epoch_of([(0, json.dumps(each).encode()) for each in (good, bad)])
    assert job.at_view("by-key").results() == {("a",): (1,), ("b",): (1,)}
    wider = {"k": "STRING", "w": "INT"}
    views = {"by-key": of_view(BY_KEY), "sums": of_view("SELECT SUM(w) AS s FROM t")}
    job.replay(with_keys(job, columns=wider, views=views))
    assert results(job, "sums") == {(): (7,)}
    for name in views:
        assert listed(job.at_view(name)) == [(2, 1, "message")], name


def test_a_query_that_refuses_less_counts_what_the_old_one_refused(by_hand: ByHand) -> None:
    summed = NUMBERS.replace("AS s FROM", "AS s, COUNT(*) AS n FROM")
    columns = {"k": "STRING", "v": "STRING"}
    job = by_hand.views({"by-key": summed}, columns=columns, max_bad_fraction=1.0)
    job.epoch_of([(0, insert(row("a", "1"))), (0, insert(row("a", "x")))])
    assert job.at_view("by-key").results() == {("a",): (1, 1)}
    counted = with_keys(job, views={"by-key": of_view(BY_KEY)})
    with pytest.raises(CannotEvolve, match="the old query has refused messages"):
        evolve(job.place.at_view(""), counted)
    job.replay(counted)
    assert results(job, "by-key") == {("a",): (2,)}
    assert listed(job.at_view("by-key")) == []


def test_what_the_views_decode_now_is_in_no_quarantine_and_cannot_count_twice(
    by_hand: ByHand,
) -> None:
    columns = {"k": "STRING", "v": "INT"}
    job = by_hand.views({"by-key": BY_KEY}, columns=columns, max_bad_fraction=1.0)
    job.epoch_of([(0, insert(row("a", 1))), (0, insert(row("a", 5_000_000_000)))])
    assert listed(job.at_view("by-key")) == [(1, 1, "message")]
    job.replay(with_keys(job, columns={"k": "STRING", "v": "BIGINT"}))
    assert results(job, "by-key") == {("a",): (2,)}
    assert listed(job.at_view("by-key")) == []


def test_what_the_query_of_a_job_with_views_refuses_in_a_replay_is_listed(by_hand: ByHand) -> None:
    columns = {"k": "STRING", "v": "STRING"}
    views = {"": BY_KEY, "whole": WHOLE}
    job = by_hand.views(views, columns=columns, max_bad_fraction=1.0)
    job.epoch_of([(0, insert(row("a", "2"))), (0, insert(row("a", "three"))), (0, b"no")])
    job.replay(with_keys(job, query=NUMBERS))
    assert job.at_view("").results() == {("a",): (2,)}
    assert results(job, "whole") == {(): (2,)}
    assert listed(job.at_view("")) == [(2, 1, "expression"), (1, 2, "message")]
    assert job.pipeline.newest.of_view("").counts.quarantined == 1


def test_what_only_a_replayed_view_refuses_is_its_own_and_is_not_sent_again(
    by_hand: ByHand,
) -> None:
    job = by_hand.views({"by-key": BY_KEY}, max_bad_fraction=1.0, **TIMED)
    job.epoch_of([(0, timed("a")), (0, b"no")])
    views = {"by-key": of_view(BY_KEY), "whole": of_view(WHOLE + " WHERE k <> 'b'")}
    job.replay(with_keys(job, views=views), now_ms=EARLY_MS)
    new = job.at_view("whole")
    assert listed(new) == [(2, 0, "future"), (1, 1, "message")]
    assert listed(job.at_view("by-key")) == [(1, 1, "message")]
    assert job.at_view("by-key").results() == {("a",): (1,)}
    assert new.results() == {}
    identity = identity_of(msgspec.convert(new.quarantine()[0], QuarantineRow).position)
    connections = load_connections(None, by_hand.brokers)
    with (
        KafkaAdmin({"bootstrap_servers": [by_hand.brokers]}) as admin,
        pytest.raises(CannotReplay, match="only one view refused this message"),
    ):
        send_again(new.place, identity, timed("c"), connections, admin)


@pytest.mark.parametrize("name", ["", "whole"])
def test_a_replay_that_disagrees_with_the_quarantine_of_all_views_is_refused(
    name: str, by_hand: ByHand
) -> None:
    job = by_hand.views({"by-key": BY_KEY}, max_bad_fraction=1.0, **TIMED)
    job.now_ms = None if name == "" else EARLY_MS
    job.restart()
    job.epoch_of([(0, timed("a"))])
    changed: dict[str, Any] = {"query": WHOLE + " WHERE k <> 'b'"}
    if name:
        changed = {"views": {"by-key": of_view(BY_KEY), name: of_view(changed["query"])}}
    then = EARLY_MS if name == "" else None
    reason = "the other views have taken" if name == "" else "in quarantine, but the replay"
    with pytest.raises(CannotEvolve, match=rf"{by_hand.topic}/0 offset 0.*{reason}|{reason}"):
        job.replay(with_keys(job, **changed), now_ms=then)
    assert [each.kind for each in job.epochs()] == ["start", "data"]


@pytest.mark.parametrize("name", ["", "whole"])
def test_a_message_that_retention_has_removed_from_the_quarantine_is_no_conflict_and_not_new(
    name: str, by_hand: ByHand
) -> None:
    columns = {"k": "STRING", "v": "STRING"}
    job = by_hand.views({"by-key": BY_KEY}, columns=columns, max_bad_fraction=1.0)
    job.epoch_of([(0, insert(row("a", "2"))), (0, b"no")])
    job.epoch_of([(0, insert(row("a", "3")))])
    job.epoch_of([(0, b"neither"), (0, insert(row("a", "four")))])
    expire(job, 1)
    assert listed(job.at_view("by-key")) == [(3, 3, "message")]
    changed: dict[str, Any] = {"query": NUMBERS}
    if name:
        changed = {"views": {"by-key": of_view(BY_KEY), name: of_view(NUMBERS)}}
    job.replay(with_keys(job, **changed))
    new = job.at_view(name)
    assert results(job, name) == {("a",): (5,)}
    assert listed(new) == [(3, 3, "message"), (4, 4, "expression")]
    assert new.pipeline.newest.of_view(name).counts.quarantined == 1
    # Whether another view has taken the message is unknown, so no view may get this state.
    assert name in TableVersion(job.root).refusing
    assert new.pipeline.newest.refused[name] == 2


def test_a_merged_file_of_epoch_rows_hides_no_message_that_retention_has_removed(
    by_hand: ByHand,
) -> None:
    columns = {"k": "STRING"}
    job = by_hand.views({"by-key": BY_KEY}, columns=columns, max_bad_fraction=1.0)
    job.epoch_of([(0, insert(row("a", 1))), (0, b"no")])
    job.epoch_of([(0, insert(row("a", 2)))])
    table = job.pipeline.table
    old = [file for file in table.live_files() if file.part == QUARANTINE]
    table.commit((), old, uuid=uuid4().hex, what="retention")  # of the epoch rows none is removed
    job.restart()
    job.replay(with_keys(job, query=WHOLE))
    assert results(job, "") == {(): (2,)}
    assert listed(job.at_view("")) == []


@pytest.mark.parametrize("name", ["", "whole"])
def test_retention_that_has_removed_no_refused_message_hides_none_that_a_view_refuses(
    name: str, by_hand: ByHand
) -> None:
    job = by_hand.views({"by-key": BY_KEY}, max_bad_fraction=1.0, **TIMED)
    job.epoch_of([(0, timed("a"))])
    job.epoch_of([(0, b"no")])
    expire(job, 1)
    if name:
        views = {"by-key": of_view(BY_KEY), name: of_view(WHOLE + " WHERE k <> 'b'")}
        job.replay(with_keys(job, views=views), now_ms=EARLY_MS)
        assert listed(job.at_view(name)) == [(3, 0, "future"), (2, 1, "message")]
        return
    with pytest.raises(CannotEvolve, match="which the other views have taken"):
        job.replay(with_keys(job, query=WHOLE + " WHERE k <> 'b'"), now_ms=EARLY_MS)


def test_a_clone_does_not_know_which_messages_its_original_has_refused(by_hand: ByHand) -> None:
    columns = {"k": "STRING"}
    job = by_hand.views({"by-key": BY_KEY}, columns=columns, max_bad_fraction=1.0)
    job.epoch_of([(0, insert(row("a", 1))), (0, b"no")])
    job.epoch_of([(0, insert(row("a", 2)))])
    expire(job, 1)
    spec = load_spec(job.spec.document() | {"name": "copied"})
    clone(job.place.at_view(""), JobDirectory(by_hand.home, "copied"), spec, None)
    copied = by_hand.reopen(spec)
    copied.replay(with_keys(copied, query=WHOLE))
    assert copied.at_view("").results() == {(): (2,)}
    assert listed(copied.at_view("")) == []
