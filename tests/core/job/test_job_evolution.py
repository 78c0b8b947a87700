"""What another set of views does to a job, and from which state a new view may start."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from jobs.core.job.evolution import drops_topics
from jobs.core.job.job_evolution import (
    FAILING_ROWS,
    LACKING_ROWS,
    OTHER_PLAN,
    compare_specs,
    lacks_rows,
)
from jobs.core.job.views import fingerprints_of, has_state_of
from schemas.spec.file import load_spec
from schemas.spec.job import JobSpec
from schemas.table.epoch import VIEWS
from tests.support.epoch_rows import epoch_row

SUMS = "SELECT k, SUM(v) AS s, MAX(v) AS top FROM t GROUP BY k"
LOWS = "SELECT k, MIN(v) AS low FROM t GROUP BY k"


def spec(views: dict[str, Any], **keys: Any) -> JobSpec:
    written = {
        name: {"query": view} if isinstance(view, str) else view for name, view in views.items()
    }
    document = {"name": "items", "source": {"topic": "t"}, "columns": {"k": "STRING", "v": "INT"}}
    return load_spec({**document, "views": written, **keys})


def row(of: JobSpec) -> Any:
    shares = {
        name: {"plan": plan, "counters": {"groups": 1}}
        for name, plan in fingerprints_of(of).items()
    }
    return epoch_row(3, counters={"groups": 1, VIEWS: shares})


def test_the_same_views_in_another_order_are_no_change() -> None:
    old = spec({"sums": SUMS, "lows": LOWS})
    found = compare_specs(old, spec({"lows": LOWS, "sums": SUMS}), row(old))
    assert found.same and found.continues
    assert {view.name for view in found.replayed} == {"sums", "lows"}


def test_each_view_stays_changes_comes_or_goes_by_itself() -> None:
    old = spec({"sums": SUMS, "lows": LOWS, "gone": "SELECT COUNT(*) AS n FROM t"})
    larger = SUMS.replace("FROM t", "FROM t WHERE v > 1")
    found = compare_specs(
        old,
        spec(
            {
                "sums": larger,
                "lows": LOWS,
                "kinds": LOWS.replace("MIN(v) AS low", "COUNT(DISTINCT v) AS kinds"),
            }
        ),
        row(old),
    )
    assert [view.name for view in found.changed] == ["sums", "kinds"]
    assert [view.source for view in found.changed] == ["sums", "sums"]
    assert found.removed == ("gone",)
    assert found.reasons == ("view 'sums': WHERE changed, and rows that it removed are not kept",)
    assert (found.added, found.dropped) == (("kinds",), ("gone",))
    assert found.replays and not found.continues and not found.begins


@pytest.mark.parametrize(
    ("known", "refusing"),
    [
        ({"query": SUMS, "state": {"ttl": "1d"}}, ()),  # some of its groups have expired
        ({"query": SUMS, "state": {"buckets": 8}}, ()),
        ({"query": SUMS.replace("FROM t", "FROM t WHERE v > 1")}, ()),
        ({"query": SUMS}, ("sums",)),  # some of its messages were refused
    ],
)
def test_a_new_view_does_not_start_with_a_state_that_lacks_rows(
    known: dict[str, Any], refusing: tuple[str, ...]
) -> None:
    old = spec({"sums": known})
    new = spec({"sums": known, "lows": LOWS})
    (view,) = compare_specs(old, new, row(old), refusing).changed
    assert view.source is None
    assert view.found.reasons == ("it is new, and the state of no other view answers it",)


CASTS = "SELECT k, SUM(CAST(k AS INT)) AS s, COUNT(*) AS n FROM t GROUP BY k"
MAY_TAKE = "view 'casts': the old query has refused messages that the new one may take"


@pytest.mark.parametrize(
    ("query", "keys", "refusing", "reasons"),
    [
        (CASTS.replace("COUNT(*) AS n", "COUNT(*) + 1 AS n"), {}, ("casts",), ()),
        (CASTS.replace("SUM(CAST(k AS INT)) AS s, ", ""), {}, (), ()),
        (CASTS.replace("SUM(CAST(k AS INT)) AS s, ", ""), {}, ("casts",), (MAY_TAKE,)),
        (CASTS + " HAVING COUNT(*) > 1", {"columns": {"k": "STRING"}}, ("casts",), (MAY_TAKE,)),
    ],
)
def test_a_query_that_refuses_less_is_not_answered_by_a_state_that_lacks_messages(
    query: str, keys: dict[str, Any], refusing: tuple[str, ...], reasons: tuple[str, ...]
) -> None:
    old = spec({"casts": CASTS})
    assert compare_specs(old, spec({"casts": query}, **keys), row(old), refusing).reasons == reasons


def test_a_new_view_needs_a_topic_of_its_own_and_no_view_another_source_or_buckets() -> None:
    old = spec({"sums": {"query": SUMS, "sink": {"topic": "out"}}})
    renamed = spec({"others": {"query": SUMS, "sink": {"topic": "out"}}})
    found = compare_specs(old, renamed, row(old))
    assert found.fixed == (
        "topic out has the changelog of view 'sums'; give views.others.sink.topic another name",
    )
    buckets = spec({"sums": {"query": SUMS, "state": {"buckets": 8}}})
    assert "view 'sums': state.buckets is fixed" in compare_specs(old, buckets, row(old)).fixed[0]
    other_source = spec({"sums": SUMS}, source={"topic": "u"})
    assert "source.topic changed" in compare_specs(old, other_source, row(old)).reasons[0]


def test_a_new_view_does_not_start_with_the_state_of_windows_that_close() -> None:
    """A closed window has its results only: a MAX of it would be NULL."""
    keys: dict[str, Any] = {
        "columns": {"k": "STRING", "v": "INT", "t": "TIMESTAMP(3)"},
        "watermark": {"time": {"column": "t"}, "delay": "1s"},
    }
    query = (
        "SELECT k, window_start, window_end, MAX(v) AS top FROM t "
        "GROUP BY k, TUMBLE(t, INTERVAL '10' SECOND)"
    )
    for emit, source in (("final", None), ("changes", "tops")):
        view = {"query": query, "emit": emit}
        old = spec({"tops": view}, **keys)
        (new,) = compare_specs(old, spec({"renamed": view}, **keys), row(old)).changed
        assert new.source == source


JOINED = "SELECT region, SUM(v) AS s FROM orders o JOIN customers c ON o.c = c.id GROUP BY region"


COUNTED = (
    "SELECT region, COUNT(v) AS n FROM orders o JOIN customers c ON o.c = c.id GROUP BY region"
)


def joined(views: dict[str, str], **customers: Any) -> JobSpec:
    columns = {"id": "INT", "region": "STRING", "active": "BOOLEAN"}
    sources = {
        "orders": {"topic": "o", "columns": {"c": "INT", "v": "INT"}},
        "customers": {"topic": "c", "columns": columns, **customers},
    }
    written = {name: {"query": query} for name, query in views.items()}
    return load_spec({"name": "revenue", "sources": sources, "views": written})


NAMES = "SELECT region, COUNT(*) AS n FROM customers GROUP BY 1"


@pytest.mark.parametrize(
    ("views", "reason"),
    [
        ({"sums": JOINED.replace("SUM(v)", "COUNT(v) AS n, SUM(v)")}, ""),
        ({"sums": JOINED + " HAVING COUNT(*) > 1", "counts": COUNTED}, ""),
        ({"sums": JOINED.replace("SUM(v) AS s", "COUNT(*) AS n")}, LACKING_ROWS),
        ({"sums": f"{JOINED} HAVING MAX(v) > 1"}, "needs all values of v, which are not kept"),
        ({"sums": JOINED.replace("JOIN", "LEFT JOIN")}, "FROM joins other rows"),
    ],
    ids=["another aggregate", "another view", "fewer columns", "not kept", "another join"],
)
def test_a_job_with_joins_continues_if_its_table_has_the_rows_of_both_sides(
    views: dict[str, str], reason: str
) -> None:
    old = joined({"sums": JOINED, "names": NAMES})
    found = compare_specs(old, joined(views), row(old))
    assert found.replays and found.continues == (not reason)
    assert reason in "; ".join(found.reasons)


def test_a_replay_of_one_query_with_joins_is_of_all_views() -> None:
    old, new = (joined({"sums": JOINED, "names": NAMES} | more) for more in ({}, {"new": COUNTED}))
    assert {view.name for view in compare_specs(old, new, row(old)).replayed} == {
        *("sums", "names", "new")
    }


def test_joined_rows_on_which_an_expression_fails_are_read_again() -> None:
    old = joined({"sums": JOINED})
    known = row(old)
    known = msgspec.structs.replace(known, counters={**known.counters, "failing_rows": 1})
    found = compare_specs(old, joined({"sums": JOINED + " HAVING COUNT(*) > 1"}), known)
    assert found.reasons == (FAILING_ROWS,) and found.replays
    assert compare_specs(old, old, known).continues


def test_a_job_with_joins_reads_again_to_keep_last_images() -> None:
    old = joined({"sums": JOINED})
    new = joined({"sums": JOINED}, primary_key=["id"], dedupe="pk")
    assert lacks_rows(old, new)
    assert not lacks_rows(old, joined({"sums": JOINED}, watermark={"delay": "5s"}))
    found = compare_specs(old, new, row(old))
    assert found.reasons == (LACKING_ROWS,) and found.replays and found.same


MORE = {"topic": "m", "columns": {"id": "INT"}}


@pytest.mark.parametrize(
    ("views", "changes", "dropped"),
    [
        ({"sums": JOINED}, {"customers": {"topic": "other"}}, True),
        ({"sums": JOINED}, {"customers": {"topics": ["c", "d"]}}, False),
        ({"sums": JOINED}, {"customers": {"topic": "o"}, "orders": {"topic": "c"}}, True),
        ({"sums": JOINED}, {"more": MORE}, False),
        ({"sums": JOINED, "more": "SELECT COUNT(*) AS n FROM more"}, {"more": MORE}, False),
        ({"new": "SELECT id, COUNT(*) AS n FROM customers GROUP BY id"}, {"more": MORE}, False),
    ],
    ids=["another topic", "a second topic", "swapped", "more", "a view of more", "another view"],
)
def test_other_topics_are_read_again_for_all_views(
    views: dict[str, str], changes: dict[str, Any], dropped: bool
) -> None:
    """The state of views that stay has the rows of the old topics, too."""
    old = joined({"sums": JOINED, "names": NAMES})
    document = joined(views | {"names": NAMES}).document()
    for name, keys in changes.items():
        source = document["sources"].get(name, {})
        kept = {key: value for key, value in source.items() if not key.startswith("topic")}
        document["sources"][name] = {**kept, **keys}
    new = load_spec(document)
    found = compare_specs(old, new, row(old))
    assert found.reasons == ("sources changed, and the state has the rows of the old topics",)
    assert found.replays and not found.continues
    assert {view.name for view in found.replayed} == {*views, "names"}
    assert drops_topics(old, new) == dropped


def test_the_entry_of_one_source_is_another_way_to_write_the_short_form() -> None:
    short, columns = spec({"sums": SUMS}), {"k": "STRING", "v": "INT"}
    queries = {"sums": {"query": SUMS}}
    keys: dict[str, Any] = {"name": "items", "views": queries}
    long, other = (
        load_spec(keys | {"sources": {"t": {"topic": topic, "columns": columns}}})
        for topic in ("t", "u")
    )
    assert not drops_topics(short, long) and not drops_topics(long, short)
    assert drops_topics(short, other) and drops_topics(other, short)


def test_an_epoch_tells_whose_state_it_has_also_while_the_spec_beside_it_is_older() -> None:
    old, new = joined({"sums": JOINED}), joined({"sums": JOINED}, topic="other")
    before = row(old)
    assert has_state_of(before, old, old) and not has_state_of(before, new, old)
    sources = {name: list(topics) for name, topics in new.topics_by_source.items()}
    after = msgspec.structs.replace(before, counters={**before.counters, "sources": sources})
    assert has_state_of(after, new, old) and not has_state_of(after, old, old)
    assert after.repeated_counters == {"sources": sources}


def test_a_state_from_before_a_query_got_another_plan_is_no_state_of_it() -> None:
    """Until its row of a NULL counted, a ROW of one column had the plan of the column."""
    kinds = "SELECT k, COUNT(DISTINCT v) AS kinds FROM t GROUP BY k"
    old = spec({"kinds": kinds.replace("(DISTINCT v)", "(DISTINCT ROW(v))")})
    known = row(spec({"kinds": kinds}))
    found = compare_specs(old, old, known)
    assert found.reasons == (f"view 'kinds': {OTHER_PLAN}",) and found.replays
    assert compare_specs(old, spec({"kinds": kinds}), known).same
    both = compare_specs(old, spec({"kinds": kinds, "new": kinds + " HAVING k > 'a'"}), known)
    assert [(view.name, view.source) for view in both.changed] == [("new", None)]
