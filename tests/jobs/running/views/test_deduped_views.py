"""Views that share the last images of rows: each is what a job of its own would be.

random table, repeated ─► a job with views, `dedupe: pk` ─► each view ─┬─ DuckDB over the live rows
recordings of canal    ─┘                                              ├─ a job with this view alone
                                                                       └─ what the database answers
"""

from __future__ import annotations

import shutil
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass, field
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from jobs.changing.clone import clone
from jobs.changing.evolve import CannotEvolve, evolve
from jobs.checking.audit_views import audit_views
from jobs.core.job.cloning import clone_spec
from jobs.edge.kafka.admin import KafkaAdmin
from jobs.edge.process.job_directory import JobDirectory
from jobs.edge.table.compaction import BASE_TIER, Merge, merge_files
from jobs.edge.table.reading import TableReader
from jobs.reading.files import own_files
from jobs.reading.parts import ROWS
from schemas.spec.connections import load_connections
from schemas.spec.file import load_spec
from schemas.spec.job import JobSpec
from tests.support.database_rows import differences
from tests.support.jobs.canal_messages import delete, insert, message
from tests.support.jobs.epochs_by_hand import ByHand, EpochsByHand, of_view
from tests.support.recordings import DIRECTORY, Recording
from tests.support.sampling import quick

COLUMNS = {"id": "BIGINT", "k": "STRING", "v": "INT", "w": "STRING"}
DEDUPE: dict[str, Any] = {"primary_key": ["id"], "dedupe": "pk", "columns": COLUMNS}
VIEWS = {
    "": "SELECT k, SUM(v) AS s, MAX(v) AS top FROM t GROUP BY k",
    "wide": "SELECT w, COUNT(DISTINCT id) AS ids, MIN(__es) AS since FROM t GROUP BY w",
    "large": "SELECT COUNT(*) AS large FROM t WHERE v > 4",
    "all": "SELECT COUNT(*) AS n FROM t",
}
RECORDINGS = {path.name.partition(".")[0]: Recording.load(path) for path in DIRECTORY.glob("*.gz")}
Sent = list[tuple[int, bytes]]


@dataclass
class Table:
    """Rows that change, in columns that only some of the views read."""

    random: Random
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    es: int = 1_000_000

    def changes(self, count: int) -> Sent:
        return [self._change() for _ in range(count)]

    def _change(self) -> tuple[int, bytes]:
        number, before = self.random.randrange(12), None
        before, self.es = self.rows.get(number), self.es + 1_000
        if before is not None and self.random.random() < 0.3:
            return number % 2, message("DELETE", [texts(self.rows.pop(number))], es=self.es)
        row = {
            "id": number,
            "k": self.random.choice("ab"),
            "v": self.random.randrange(9),
            "w": self.random.choice(["x", None]),
        }
        if before is not None and self.random.random() < 0.5:  # a change that one view sees
            name = self.random.choice("kvw")
            row = {name_: before[name_] for name_ in row} | {name: row[name]}
        self.rows[number] = {**row, "__es": self.es}
        if before is None:
            return number % 2, insert(texts(row), es=self.es)
        old = {name: text for name, text in texts(before).items() if text != texts(row)[name]}
        return number % 2, message("UPDATE", [texts(row)], [old], es=self.es)

    def must_be(self, job: EpochsByHand) -> None:
        """Compare the results of each view with DuckDB's."""
        kinds = {"id": pa.int64(), "k": pa.string(), "v": pa.int32(), "w": pa.string()}
        schema = pa.schema([*kinds.items(), ("__es", pa.int64())])
        t = pa.Table.from_pylist(list(self.rows.values()), schema)
        assert t.num_rows, "DuckDB has a row of aggregates over nothing"
        for name, spec in job.spec.view_specs.items():
            seen = job.at_view(name)
            found = [tuple(each["row"].values()) for each in json_results(seen)]
            wanted = duckdb.connect().register("t", t).execute(spec.query).fetchall()
            assert Counter(found) == Counter(row for row in wanted if row != (0,)), name
        assert job.pipeline.newest.counters["images"] == len(self.rows)


def texts(row: dict[str, Any]) -> dict[str, Any]:
    return {name: None if row[name] is None else str(row[name]) for name in COLUMNS if name in row}


def json_results(seen: EpochsByHand) -> list[dict[str, Any]]:
    """Return the results of a view, which its changelog leads to."""
    seen.results()
    reader = TableReader.open(seen.place)
    return [{"row": reader.shape.row(key, row)} for key, row in reader.results().items()]


def merge_images(job: EpochsByHand) -> None:
    """Merge all files of images, as compaction does."""
    shared = job.pipeline.subtables[0]
    table = job.pipeline.table
    old = [each for each in own_files(table.live_files(), shared.view) if each.part == ROWS]
    added = merge_files(shared.plan, shared.root, Merge(ROWS, BASE_TIER, tuple(old)), "merged")
    table.commit(added, old, uuid="merged", what="compaction")


@pytest.mark.parametrize("seed", quick([1, 2], [2]))
def test_each_view_of_shared_images_is_what_a_job_of_its_own_would_be(
    seed: int, by_hand: ByHand
) -> None:
    early: dict[str, Any] = {"early_retractions": "drop" if seed == 2 else "keep"}
    job = by_hand.views(VIEWS, **DEDUPE, **early, at="all", partitions=2)
    alone: dict[str, EpochsByHand] = {}
    for name, query in VIEWS.items():
        document = {"query": query, **DEDUPE, **early}
        alone[name] = by_hand.job(document, at=f"own-{name}", partitions=2)
    table, output = Table(Random(seed)), list[tuple[int, bytes]]()
    for number in range(5):
        again, fresh = output[-15:], table.changes(30)
        output += fresh
        done = job.epoch_of([*again, *fresh])
        table.must_be(job)
        for name, own in alone.items():
            wanted = own.lines(own.epoch().epoch)
            assert sorted(job.at_view(name).lines(done.epoch)) == sorted(wanted), name
        shipped = {name: each.counters["shipped"] for name, each in done.shares.items()}
        assert number == 0 or shipped["all"] < shipped["wide"], "it gets what it does not read"
        if number == 1:
            merge_images(job)
            shutil.rmtree(job.cache)
        if number % 2:
            job.time_epoch()
            job.restart()
    whole = job.epoch_of(output).counters
    assert (whole["duplicates"], whole["changelog_rows"]) == (whole["rows"], 0)


@pytest.mark.parametrize("name", sorted(RECORDINGS))
def test_what_a_canal_sent_gives_each_view_what_its_database_answers(
    name: str, by_hand: ByHand
) -> None:
    made = RECORDINGS[name]
    document = made.spec(primary_key=["id"], dedupe="pk")
    del document["name"]
    document["source"] |= {"topic": by_hand.topic}
    columns = ", ".join(made.columns)
    document["views"] = {
        "again": {"query": f"SELECT COUNT(*) AS again FROM {made.table} WHERE id IS NOT NULL"},
        "rows": {
            "query": f"SELECT {columns}, COUNT(*) AS times FROM {made.table} GROUP BY {columns}"
        },
    }
    job = by_hand.job(document, partitions=len(made.partitions))
    sent = [
        (each["partition"], each["message"].encode()) for each in made.interleaved(seed=len(name))
    ]
    for start in range(0, len(sent), (size := len(sent) // 4 + 1)):
        job.epoch_of(sent[start : start + size])
    rows = [each["row"] for each in json_results(job)]
    assert differences(rows, made.truth, made.keys) == ([], [])
    count = sum(int(group["n"] or 0) for group in made.truth)
    assert [each["row"] for each in json_results(job.at_view("again"))] == [{"again": count}]
    assert len(json_results(job.at_view("rows"))) == count


def test_a_message_that_one_view_refuses_is_refused_by_all_that_share_the_images(
    by_hand: ByHand,
) -> None:
    views = {"parts": "SELECT k, SUM(12 / v) AS s FROM t GROUP BY k", "all": VIEWS["all"]}
    job = by_hand.views(views, **DEDUPE, max_bad_fraction=1.0)
    good = {"id": "1", "k": "a", "v": "3", "w": None}
    zero = {**good, "v": "0"}
    bad = [message("UPDATE", [zero], [{"v": "3"}]), insert({**zero, "id": "2"})]
    counters = job.epoch_of([(0, insert(good)), *((0, each) for each in bad)]).counters
    assert (counters["quarantined"], counters["rows"], counters["images"]) == (2, 1, 1)
    for name in views:
        seen = TableReader.open(job.at_view(name).place).part("quarantine")
        assert [each["raw"] for each in seen] == bad
        assert seen[0]["reason"].startswith("view parts: 12 / v: division by zero; the row is")
    assert job.at_view("parts").results() == {("a",): (4,)}
    assert job.at_view("all").results() == {(): (1,)}
    job.epoch_of([(0, delete(zero))])
    assert job.at_view("all").results() == {}


def evolved(job: EpochsByHand, views: dict[str, str]) -> JobSpec:
    sections = {name: of_view(query) for name, query in views.items()}
    return load_spec(job.spec.document() | {"views": sections})


def test_views_come_and_go_with_images_that_have_the_columns_of_all(by_hand: ByHand) -> None:
    first = {name: VIEWS[name] for name in ("", "large", "all")}
    job, table = by_hand.views(first, **DEDUPE, partitions=2), Table(Random(7))
    job.epoch_of(table.changes(40))

    # The state of another view answers it, and the images have its columns.
    kept = {"large": first["large"], "all": first["all"]}
    low = {**kept, "low": "SELECT k, MIN(v) AS low FROM t GROUP BY k"}
    assert job.evolve(evolved(job, low)).row is not None
    table.must_be(job)
    job.epoch_of(table.changes(20))
    table.must_be(job)

    # Its columns are in no image, so that all views are read again.
    wide = {**kept, "wide": VIEWS["wide"]}
    with pytest.raises(CannotEvolve, match="it is new"):
        evolve(job.place, evolved(job, wide))
    assert list(job.replay(evolved(job, wide)).spec.view_specs) == ["", "large", "all", "wide"]
    table.must_be(job)
    job.epoch_of(table.changes(20))
    table.must_be(job)

    # Images with fewer columns would be others.
    with pytest.raises(CannotEvolve, match=r"last images of rows.* columns of the old"):
        evolve(job.place, evolved(job, kept))
    job.replay(evolved(job, kept))
    job.epoch_of(table.changes(20))
    table.must_be(job)


def test_a_rewind_and_a_clone_of_views_take_along_their_images(by_hand: ByHand) -> None:
    job, table = by_hand.views(VIEWS, **DEDUPE, partitions=2), Table(Random(8))
    job.epoch_of(table.changes(40))
    job.epoch_of(table.changes(40))
    other = clone_spec(job.spec, "other")
    clone(job.place, JobDirectory(by_hand.home, "other"), other, "1")
    assert job.rewind("1").row is not None
    for spec in (job.spec, other):
        again = by_hand.reopen(spec)
        again.epoch()
        table.must_be(again)
        for view in VIEWS:
            reader = TableReader.open(again.at_view(view).place)
            for key in reader.results():
                assert (reader.explain(key).row_count or 0) > 0


@pytest.mark.slow
@pytest.mark.spark
def test_the_audit_of_views_that_share_images_finds_them_equal(
    by_hand: ByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An audit ends its session, and this one is that of all tests here.
    name = "jobs.checking.audit_views.open_session"
    monkeypatch.setattr(name, lambda *_: nullcontext(lambda: by_hand.spark))
    job, table = by_hand.views(VIEWS, **DEDUPE, partitions=2), Table(Random(9))
    output = table.changes(60)
    job.epoch_of([*output, *output[:20], *output])
    connections = load_connections(None, by_hand.brokers)
    with KafkaAdmin({"bootstrap_servers": [by_hand.brokers]}) as admin:
        report = audit_views(job.place, connections, admin, "local[1]")
    assert {name: each.verdict for name, each in report.views.items()} == dict.fromkeys(
        VIEWS, "equal"
    )
