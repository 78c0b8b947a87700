"""The plan as nodes: one chain from the source to the sink, with the time that really acts."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from jobs.core.job.job_plan import plan_of
from jobs.core.job.plan_nodes import list_nodes
from schemas.documents.answers import PlanNode
from schemas.spec.job import JobSpec

SPEC: dict[str, Any] = {
    "name": "items",
    "source": {"topics": ["shop.old", "shop.new"], "start": {"timestamp": 0}},
    "columns": {"id": "BIGINT", "name": "STRING", "cnt": "INT", "at": "TIMESTAMP(3)"},
    "query": "SELECT name, SUM(cnt + 1) AS total, MAX(cnt) AS top FROM t WHERE cnt > 0 "
    "GROUP BY name",
    "sink": {"topic": "items-changes"},
}
TUMBLE = "SELECT name, COUNT(*) AS n FROM t GROUP BY name, TUMBLE(at, INTERVAL '1' MINUTE)"


def nodes_of(**changes: Any) -> dict[str, PlanNode]:
    spec = JobSpec.model_validate(SPEC | changes)
    return {node.id: node for node in list_nodes(spec, plan_of(spec))}


def test_each_node_reads_the_one_before_it_and_the_source_reads_none() -> None:
    nodes = list(nodes_of().values())
    assert [node.type for node in nodes] == [
        "TableSourceScan",
        "WatermarkAssigner",
        "MiniBatchAssigner",
        "LocalGroupAggregate",
        "Calc",
        "Exchange",
        "GlobalGroupAggregate",
        "DeltaTable",
        "Sink",
    ]
    assert nodes[0].predecessors == []
    pairs = pairwise(nodes)
    assert all(node.predecessors == [before.id] for before, node in pairs)


def test_a_job_without_a_sink_ends_in_its_table() -> None:
    assert list(nodes_of(sink=None))[-1] == "table"


def test_the_source_has_its_topics_its_start_and_only_the_columns_that_are_used() -> None:
    source = nodes_of()["source"].attributes
    assert source["topics"] == ["shop.old", "shop.new"]
    assert source["start"] == '{"timestamp":"1970-01-01T00:00:00.000Z"}'
    assert source["fields"] == ["name", "cnt"]
    assert source["decoding"] == "scanned, many messages at once"


@pytest.mark.parametrize(
    ("watermark", "strategy"),
    [
        ({}, "MAX(es) - 1ms"),
        ({"time": {"column": "at"}, "delay": "5s", "exact": True}, "MAX(at) - 5s"),
        ({"time": "ts", "generator": "monotonous"}, "MAX(ts) - 1ms"),
        (
            {"generator": "punctuated", "delay": "2s", "marker": "name = 'end'"},
            "MAX(es) - 2s at a row where name = 'end'",
        ),
        ({"generator": "lag", "delay": "1m"}, "now - 1m"),
        ({"time": "ingestion"}, "now, once every emit_every"),
        ({"generator": {"class": "shop.time:Slow"}}, "shop.time:Slow"),
    ],
)
def test_the_watermark_is_an_expression_over_the_times_of_rows(
    watermark: dict[str, Any], strategy: str
) -> None:
    assert nodes_of(watermark=watermark)["watermark"].attributes["strategy"] == strategy


def test_idleness_and_alignment_are_part_of_the_watermark_and_null_without() -> None:
    align = {"group": "shop", "max_drift": "1m", "every": "2s"}
    found = nodes_of(watermark={"idle_after": "30s", "align": align})["watermark"].attributes
    assert found["idle_after"] == "30s"
    assert (found["align_group"], found["max_drift"], found["align_every"]) == ("shop", "1m", "2s")
    found = nodes_of()["watermark"].attributes
    names = ("idle_after", "align_group", "max_drift", "align_every")
    assert [found[name] for name in names] == [None] * 4


def test_bundles_of_processing_time_end_by_size_latency_or_their_largest_size() -> None:
    found = nodes_of(minibatch={"size": 100, "latency": "2s", "max_rows": 900})["minibatch"]
    assert (found.attributes["mode"], found.attributes["interval"]) == ("ProcTime", "2000ms")
    assert found.attributes["because"] == "no operator needs the watermark"
    assert found.attributes["ends_bundle"] == [
        "100 messages wait",
        "a message waits 2s after the last bundle began",
        "900 messages are in it",
    ]


def test_bundles_of_size_one_do_not_wait_for_the_latency() -> None:
    found = nodes_of(minibatch={"size": 1, "latency": "2s", "max_rows": 9})["minibatch"]
    assert found.attributes["ends_bundle"] == [
        "a message waits and the last bundle is committed",
        "9 messages are in it",
    ]


def test_bundles_of_the_event_clock_end_by_the_watermark_or_by_size() -> None:
    found = nodes_of(minibatch={"clock": "event", "interval": "10s"})["minibatch"].attributes
    assert (found["mode"], found["interval"], found["size"]) == ("RowTime", "10000ms", None)
    assert found["ends_bundle"] == ["the watermark reaches the end of an interval of 10s"]
    sized = {"clock": "event", "interval": "10s", "size": 7}
    found = nodes_of(minibatch=sized)["minibatch"].attributes
    assert found["ends_bundle"][1:] == ["results of 7 rows are withheld"]


def test_windows_that_close_need_the_watermark_but_bundles_stay_on_processing_time() -> None:
    nodes = nodes_of(query=TUMBLE, emit="final", watermark={"time": {"column": "at"}})
    assert nodes["minibatch"].attributes["mode"] == "ProcTime"
    assert "only windows need the watermark" in nodes["minibatch"].attributes["because"]
    window = nodes["window"].attributes
    assert (window["window"], window["size"], window["emit"]) == ("TUMBLE", "1m", "final")
    assert window["allowed_lateness"] == "0s"


def test_equal_rows_are_added_up_before_the_shuffle_and_groups_folded_after_it() -> None:
    nodes = nodes_of(state={"buckets": 8, "ttl": "1d"})
    assert nodes["local"].attributes["group_by"] == ["name", "cnt"]
    assert nodes["exchange"].attributes == {"distribution": "hash[name]", "buckets": 8}
    found = nodes["aggregate"].attributes
    assert found["select"][1:] == ["SUM_RETRACT(total) AS total", "MAX_RETRACT(cnt) AS top"]
    assert found["aggregates"] == [
        {"name": "total", "call": "SUM(cnt + 1)", "keeps_values": False},
        {"name": "top", "call": "MAX(cnt)", "keeps_values": True},
    ]
    assert (found["ttl"], found["buckets"]) == ("1d", 8)
    assert found["folding"] == "group by group, because its results depend on time"


def test_with_dedupe_last_images_stand_where_equal_rows_were_added_up() -> None:
    nodes = nodes_of(primary_key=["id"], dedupe="pk")
    assert list(nodes)[3:5] == ["key-exchange", "images"]
    assert nodes["images"].attributes == {"key": ["id"]}
    assert "local" not in nodes


def test_grouping_sets_expand_rows_and_having_filters_results() -> None:
    query = "SELECT name, cnt, COUNT(*) AS n FROM t GROUP BY ROLLUP(name, cnt) HAVING COUNT(*) > 1"
    nodes = nodes_of(query=query)
    assert nodes["expand"].attributes == {"sets": ["{name, cnt}", "{name}", "{}"]}
    assert nodes["result"].attributes["where"] == "COUNT(*) > 1"
    assert nodes["result"].predecessors == ["aggregate"]


def test_topics_with_a_strategy_of_their_own_have_a_node_each() -> None:
    own = {"topic": "shop.new", "watermark": {"time": {"column": "at"}, "delay": "5s"}}
    nodes = nodes_of(source={"topics": ["shop.old", own]})
    first, second = nodes["watermark-shop.old"], nodes["watermark-shop.new"]
    assert first.predecessors == second.predecessors == ["source"]
    assert (first.attributes["topics"], first.attributes["strategy"]) == (
        ["shop.old"],
        "MAX(es) - 1ms",
    )
    assert second.attributes["strategy"] == "MAX(at) - 5s - 1ms"
    assert nodes["minibatch"].predecessors == [first.id, second.id]
    assert nodes["source"].attributes["topics"] == ["shop.old", "shop.new"]


def test_a_watermark_that_follows_another_job_says_so() -> None:
    source = {"topic": "items-changes", "format": "changelog-json"}
    nodes = nodes_of(source=source, watermark={"from": "progress", "delay": "1m"}, sink=None)
    strategy = nodes["watermark"].attributes["strategy"]
    assert strategy == "the watermark of the job that writes the topic - 1m"


def test_a_join_reads_the_rows_of_both_sides() -> None:
    spec = JobSpec.model_validate(
        {
            "name": "revenue",
            "sources": {
                "orders": {
                    "topic": "a",
                    "columns": {"id": "BIGINT", "customer": "BIGINT", "n": "INT"},
                    "watermark": {"delay": "5s"},
                },
                "customers": {"topic": "b", "columns": {"id": "BIGINT", "region": "STRING"}},
            },
            "query": "SELECT region, SUM(n) FROM orders o LEFT JOIN customers c "
            "ON o.customer = c.id WHERE n > 1 GROUP BY region",
        }
    )
    nodes = {node.id: node for node in list_nodes(spec, plan_of(spec))}
    assert [(node.id, node.predecessors) for node in nodes.values()][:8] == [
        ("source-o", []),
        ("watermark-o", ["source-o"]),
        ("calc-o", ["watermark-o"]),
        ("source-c", []),
        ("watermark-c", ["source-c"]),
        ("calc-c", ["watermark-c"]),
        ("join-c", ["calc-o", "calc-c"]),
        ("minibatch", ["join-c"]),
    ]
    assert nodes["source-o"].attributes["fields"] == ["customer", "n"]
    assert nodes["watermark-o"].attributes["strategy"] == "MAX(es) - 5s - 1ms"
    assert nodes["calc-o"].attributes == {
        "select": ["customer AS o.customer", "n AS o.n"],
        "where": "n > 1",
    }
    assert nodes["join-c"].attributes == {
        "join_type": "LeftOuterJoin",
        "where": "o.customer = c.id",
        "select": ["o.n", "c.region"],
    }
