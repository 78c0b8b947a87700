"""Pictures of a job beside its charts: partitions on one scale, and the dataflow."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

from jobs.core.job.job_plan import plan_of
from schemas.limits import CONSOLE_PARTITIONS
from schemas.spec.file import load_spec, read_text, validate
from schemas.spec.job import JobSpec
from schemas.table.epoch import EpochRow
from service.console.pictures.dataflow import draw_dataflow
from service.console.pictures.lineage import JobTopics, draw_lineage, list_job_topics
from service.console.pictures.partition_strip import draw_partitions
from service.supervision.register import JobRecord
from tests.support.epoch_rows import epoch_row

HOUR = 3_600_000


def row(partitions: dict[str, dict[str, Any]], combined: int | None, *holding: int) -> EpochRow:
    watermarks = {
        "combined": combined,
        "topics": {"t": {"partitions": partitions}},
        "held_by": [f"t partition {each}, silent for 2.0 s" for each in holding],
        "holding": [{"topic": "t", "partition": each} for each in holding],
    }
    offsets = {"t": dict.fromkeys(partitions, 7)}
    return epoch_row(1, offsets=offsets, watermarks=watermarks)


def test_partitions_stand_between_the_hindmost_and_the_foremost() -> None:
    parts = {"0": {"watermark": HOUR}, "10": {"watermark": 3 * HOUR}, "2": {"watermark": 2 * HOUR}}
    strip = draw_partitions(row(parts, HOUR), {"t/2": 5})
    assert [each.number for each in strip.partitions] == ["0", "2", "10"]
    assert [each.position for each in strip.partitions] == [0.0, 50.0, 100.0]
    assert [each.behind_ms for each in strip.partitions] == [2 * HOUR, HOUR, 0]
    assert [each.lag for each in strip.partitions] == [None, 5, None]
    assert strip.combined_position == 0.0


def test_some_milliseconds_are_no_distance() -> None:
    parts = {"0": {"watermark": HOUR}, "1": {"watermark": HOUR + 10}}
    assert min(each.position for each in draw_partitions(row(parts, HOUR), {}).partitions) == 99.0


def test_who_is_waited_for_is_marked_and_who_is_idle_or_paused_too() -> None:
    parts: dict[str, dict[str, Any]] = {
        "1": {"watermark": 1},
        "11": {"watermark": 9_000, "ahead": True},
        "3": {"idle": True},
    }
    strip = draw_partitions(row(parts, 1, 1), {})
    marks = {each.number: [word for word, _ in each.marks] for each in strip.partitions}
    assert marks == {"1": [], "3": ["idle"], "11": ["paused"]}
    assert [each.number for each in strip.partitions if each.holds] == ["1"]


def test_the_last_of_those_who_are_close_together_holds_nothing_back() -> None:
    parts = {"0": {"watermark": HOUR}, "1": {"watermark": HOUR + 10}}
    strip = draw_partitions(row(parts, HOUR, 0), {})
    assert strip.held_by == ()
    assert not any(each.holds for each in strip.partitions)
    parts["1"] = {"watermark": HOUR + 10_000}
    strip = draw_partitions(row(parts, HOUR, 0), {})
    assert [each.number for each in strip.partitions if each.holds] == ["0"]


def test_without_times_there_are_offsets_and_no_places() -> None:
    epoch = epoch_row(0, offsets={"t": {"0": 3}})
    (only,) = draw_partitions(epoch, {}).partitions
    assert (only.watermark, only.next_offset, only.behind_ms) == (None, 3, None)


SPEC = """\
name: items
source: {topic: shop.product}
columns: {id: BIGINT, name: STRING, cnt: INT}
primary_key: [id]
dedupe: pk
query: >
  SELECT name, SUM(cnt + 1) AS total, COUNT(DISTINCT cnt) AS kinds FROM product
  WHERE cnt > 0 GROUP BY name HAVING SUM(cnt + 1) > 5
sink: {topic: items-changes, format: upsert-json}
"""


def test_the_dataflow_shows_the_sql_of_the_query() -> None:
    spec = load_spec(SPEC)
    drawn = draw_dataflow(spec, plan_of(spec), {"read": 1, "changelog_rows": 1_200})
    assert [node.title for node in drawn.nodes] == [
        "Topic",
        "Watermark",
        "Mini-batch",
        "Shuffle",
        "Keep the last image of each row",
        "Compute",
        "Shuffle",
        "Fold",
        "Compute",
        "Table",
        "Topic",
    ]
    texts = [node.text for node in drawn.nodes]
    assert texts[0] == "shop.product, connection default, canal-json: name, cnt, id"
    assert texts[4] == "by id"
    assert texts[5].endswith("where cnt > 0")
    assert "SUM(cnt + 1) AS total" in texts[7]
    assert "COUNT(DISTINCT cnt) AS kinds (keeps all values)" in texts[7]
    assert texts[8].endswith("where SUM(cnt + 1) > 5")
    assert drawn.nodes[1].flow == "1 message"
    assert drawn.nodes[-1].flow == "1,200 changelog rows"


def test_the_dataflow_shows_what_time_does() -> None:
    time = "watermark: {delay: 5s, idle_after: 30s, align: {group: shop, max_drift: 1m}}\n"
    spec = load_spec(SPEC + time + "minibatch: {clock: event, interval: 10s}\n")
    drawn = draw_dataflow(spec, plan_of(spec), {})
    assert [line.text for line in drawn.nodes[1].lines] == [
        "MAX(es) - 5s - 1ms",
        "a partition is idle after 30s",
        "aligned in group shop, up to 1m apart",
    ]
    ends = "ends at the first of: the watermark reaches the end of an interval of 10s"
    assert drawn.nodes[2].text == f"RowTime, {ends}"


def test_strategies_of_several_topics_share_a_box() -> None:
    topics = "topics: [old, {topic: new, watermark: {delay: 5s, idle_after: 30s}}]"
    spec = load_spec(SPEC.replace("topic: shop.product", topics))
    drawn = draw_dataflow(spec, plan_of(spec), {"read": 2})
    assert [node.title for node in drawn.nodes][:3] == ["Topic", "Watermark", "Mini-batch"]
    assert [line.text for line in drawn.nodes[1].lines] == [
        "old",
        "MAX(es) - 1ms",
        "new",
        "MAX(es) - 5s - 1ms",
        "a partition is idle after 30s",
    ]
    assert drawn.nodes[1].flow == "2 messages"


JOINED = """\
name: revenue
sources:
  orders: {topic: shop.all, table: orders, columns: {id: INT, customer_id: INT, amount: INT}}
  customers: {topic: shop.all, table: customers, columns: {id: INT, region: STRING}}
query: >
  SELECT c.region, SUM(o.amount) AS revenue
  FROM orders AS o JOIN customers AS c ON o.customer_id = c.id GROUP BY c.region
"""


def test_each_source_of_a_join_is_a_chain_of_boxes_that_leads_to_it() -> None:
    spec = validate(JobSpec, read_text(JOINED, "spec"))
    drawn = draw_dataflow(spec, plan_of(spec), {"read": 2})
    titles = [node.title for node in drawn.nodes]
    chain = ["Topic", "Watermark", "Compute"]
    assert titles[:8] == [*chain, *chain, "Join", "Mini-batch"]
    orders, _, left, customers, watermark, right, join, bundle = drawn.nodes[:8]
    assert orders.text.startswith("orders AS o, shop.all, connection default")
    assert orders.text.endswith("table orders")
    assert join.text == "InnerJoin, on o.customer_id = c.id"
    assert (orders.arrows, customers.arrows) == ("", "")
    beside, direct = f"M0 {left.y + 13}H-10", f"M175 {right.y + right.height + 3}V"
    assert join.arrows.startswith(beside)
    assert direct in join.arrows
    assert direct not in bundle.arrows
    assert watermark.flow == ""  # the epoch counts the messages of both
    first, *_ = drawn.parts
    assert join in first.nodes  # no line beside the boxes leaves its part


def test_every_topic_of_several_sources_feeds_the_job() -> None:
    two_topics = JOINED.replace("shop.all, table: customers", "crm.customers, table: customers")
    text = json.dumps(load_spec(two_topics).document())
    record = JobRecord(
        name="revenue", revision=1, spec=text, since=0, desired="RUNNING", actual="RUNNING"
    )
    (found,) = list_job_topics([record])
    assert found.sources == (("default", "shop.all"), ("default", "crm.customers"))
    other = JobTopics("sums", (("default", "crm.customers"),), (), "")
    lineage = draw_lineage([found, other])
    assert lineage is not None
    assert "shop.all feeds revenue; crm.customers feeds revenue" in lineage.description


def test_boxes_stand_below_each_other_and_long_texts_are_cut() -> None:
    long = " OR ".join(f"name = 'a rather long value number {n}'" for n in range(50))
    spec = load_spec(SPEC.replace("cnt > 0", long))
    drawn = draw_dataflow(spec, plan_of(spec), {})
    assert len(drawn.parts) == 3
    for part in drawn.parts:
        for above, below in pairwise(part.nodes):
            assert below.arrows.startswith(f"M175 {above.y + above.height + 3}V")
            assert all(above.y < line.y < above.y + above.height for line in above.lines)
    assert all(part.nodes[0].arrows.startswith("M175 3V29") for part in drawn.parts[1:])
    heights = [part.height for part in drawn.parts]
    assert max(heights) < 2 * min(heights)
    condition = next(node for node in drawn.nodes if node.title == "Compute")
    assert "where" in condition.lines[1].text
    assert len(condition.lines) <= 1 + 4
    assert "number 49" in condition.text


def test_of_very_many_partitions_those_are_shown_that_one_waits_for() -> None:
    parts = {str(number): {"watermark": number * 1_000} for number in range(5_000)}
    parts["4000"] = {"watermark": 1}
    strip = draw_partitions(row(parts, 1, 4999), {})
    numbers = {each.number for each in strip.partitions}
    assert len(strip.partitions) == CONSOLE_PARTITIONS
    assert strip.known == 5_000
    assert {"0", "4000", "4999"} <= numbers
