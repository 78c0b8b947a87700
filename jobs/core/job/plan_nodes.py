"""The plan of a job as nodes: what each operator is, and what it reads from.

    source ─► watermark ─► minibatch ─┬─► local ──────────────────┬─► window ─► expand ─► calc ─┐
                                      └─► key-exchange ─► images ─┘                             │
                     sink ◄─ table ◄─ result ◄─ aggregate ◄─ exchange ◄─────────────────────────┘

With a join, the rows of several sources come before the bundle:

    source ─► watermark ─► calc ─┬─► join ─► minibatch ─► local ─► ...
    source ─► watermark ─► calc ─┘

A node is left out if the job lacks it. Types have Flink's names where Flink has the operator. The
command, the service and the console show the same nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from jobs.core.aggregates import FUNCTIONS, ReadCost, is_class
from jobs.core.fold.columnar.query import why_not_columnar
from jobs.core.fold.rules import rules_of
from jobs.core.formats.scanned import SCANNED_FORMATS, is_scannable
from jobs.core.job.window_rules import closes
from jobs.core.plan.relations import columns_in
from jobs.core.plan.tree import Column, JoinKind, Plan, Relation, Scan, Window
from jobs.core.sql.grouping_sets import sets_of_plan
from jobs.core.sql.printer import aggregate_label, aggregate_sql, expression_sql
from schemas.documents.answers import PlanNode
from schemas.spec.duration import duration_text
from schemas.spec.job import JobSpec, MiniBatch
from schemas.spec.operator_classes import GeneratorClass
from schemas.spec.watermark import Mark, RowTime, Watermark
from schemas.table.changelog import progress_topic
from schemas.types.json_types import JsonObject

RETRACTING = "_RETRACT"  # how Flink marks an aggregate that retracts rows
_JOIN_TYPES: dict[JoinKind, str] = {  # as Flink calls them
    "INNER": "InnerJoin",
    "LEFT": "LeftOuterJoin",
    "RIGHT": "RightOuterJoin",
    "FULL": "FullOuterJoin",
    "SEMI": "LeftSemiJoin",
    "ANTI": "LeftAntiJoin",
}

Attributes = JsonObject


def list_nodes(spec: JobSpec, plan: Plan) -> list[PlanNode]:
    """Return the operators of a job in the order of the data flow."""
    if plan.relation is None:
        alone = spec.source_specs[plan.source]
        attributes = _describe_source(alone, plan.image, plan.columns)
        nodes = [PlanNode("source", "TableSourceScan", [], attributes)]
        nodes += _list_watermarks(alone, "source")
        before = [node.id for node in nodes[1:]]
    else:
        nodes = list(_list_relation(spec, plan.relation))
        before = [nodes[-1].id]
    for name, kind, attributes in _list_operators(spec, plan):
        nodes.append(PlanNode(name, kind, before, attributes))
        before = [name]
    return nodes


def _list_relation(spec: JobSpec, relation: Relation) -> Iterator[PlanNode]:
    """Yield the operators of a tree of joins; the last one has its rows."""
    if isinstance(relation, Scan):
        source, name = spec.source_specs[relation.source], f"source-{relation.alias}"
        outputs = [each.expression for each in relation.outputs]
        fields = dict.fromkeys(columns_in([*outputs, relation.where]))
        declared = tuple(Column(name, kind) for name, kind in source.columns.items())
        attributes = _describe_source(source, fields, declared) | {
            "source": relation.source,
            "alias": relation.alias,
        }
        yield PlanNode(name, "TableSourceScan", [], attributes)
        watermarks = list(_list_watermarks(source, name))
        yield from watermarks
        select = [_alias(expression_sql(e.expression), e.name) for e in relation.outputs]
        where = None if relation.where is None else expression_sql(relation.where)
        before = [node.id for node in watermarks]
        yield PlanNode(f"calc-{relation.alias}", "Calc", before, {"select": select, "where": where})
        return
    sides = [list(_list_relation(spec, side)) for side in (relation.left, relation.right)]
    yield from (node for side in sides for node in side)
    keys = zip(relation.left_keys, relation.right_keys, strict=True)
    on = [f"{expression_sql(left)} = {expression_sql(right)}" for left, right in keys]
    if relation.residual is not None:
        on.append(expression_sql(relation.residual))
    yield PlanNode(
        f"join-{relation.right.alias}",
        "Join",
        [side[-1].id for side in sides],
        {
            "join_type": _JOIN_TYPES[relation.kind],
            "where": " AND ".join(on),
            "select": [column.name for column in relation.columns],
        },
    )


def list_sets(plan: Plan) -> list[list[str]]:
    """Return the columns of each grouping set."""
    return [list(dict.fromkeys(map(expression_sql, each))) for each in sets_of_plan(plan)]


def write_lateness(spec: JobSpec) -> str | None:
    """Return how long a window stays open after its end; None: for ever."""
    return duration_text(spec.allowed_lateness_ms or 0) if closes(spec) else None


def _list_operators(spec: JobSpec, plan: Plan) -> Iterator[tuple[str, str, Attributes]]:
    """Return the id, type and attributes of each operator after the watermark."""
    buckets = spec.state.buckets
    yield "minibatch", "MiniBatchAssigner", _describe_minibatch(spec)
    image = [column.name for column in plan.image]
    if plan.primary_key:  # as Flink calls it
        key = [column.name for column in plan.primary_key]
        yield "key-exchange", "Exchange", _describe_exchange(key, buckets)
        yield "images", "ChangelogNormalize", {"key": key}
    else:
        yield (
            "local",
            "LocalGroupAggregate",
            {"group_by": image, "select": [*image, f"COUNT{RETRACTING}(*) AS weight"]},
        )
    if plan.window is not None:  # where Flink prints it, although WHERE is evaluated first
        yield "window", "WindowAssigner", _describe_window(spec, plan.window)
    if plan.grouping_sets > 1:
        sets = ["{" + ", ".join(each) + "}" for each in list_sets(plan)]
        yield "expand", "Expand", {"sets": sets}
    read = [
        _alias(expression_sql(named.expression), named.name)
        for named in (*plan.group, *plan.arguments)
    ]
    where = None if plan.where is None else expression_sql(plan.where)
    yield "calc", "Calc", {"select": list(dict.fromkeys(read)), "where": where}
    group = [named.name for named in plan.group]
    yield "exchange", "Exchange", _describe_exchange(group, buckets)
    yield "aggregate", "GlobalGroupAggregate", _describe_aggregate(spec, plan)
    if plan.has_computed:
        shown = {named.name: expression_sql(named.expression, plan) for named in plan.computed}
        columns = [_alias(shown.get(name, name), name) for name in plan.output]
        having = expression_sql(plan.having, plan) if plan.having else None
        yield "result", "Calc", {"select": columns, "where": having}
    yield "table", "DeltaTable", _describe_table(spec)
    if spec.sink is not None:
        sink = spec.sink
        yield (
            "sink",
            "Sink",
            {
                "topic": sink.topic,
                "format": sink.format,
                "delivery": sink.delivery,
                "connection": sink.connection,
                "partitions": sink.partitions,
                "publishers": sink.publishers,
                "progress": progress_topic(sink.topic),
            },
        )


def _list_watermarks(spec: JobSpec, source: str) -> Iterator[PlanNode]:
    """Yield one node for each strategy; with several, each names its topics."""
    name = source.replace("source", "watermark", 1)
    topics: dict[Watermark, list[str]] = {}
    for topic, strategy in spec.strategies.items():
        topics.setdefault(strategy, []).append(topic)
    for strategy, names in topics.items():
        several = len(topics) > 1
        yield PlanNode(
            f"{name}-{names[0]}" if several else name,
            "WatermarkAssigner",
            [source],
            {"topics": names if several else None, **_describe_watermark(strategy)},
        )


def _describe_source(
    spec: JobSpec, fields: Iterable[Column], declared: tuple[Column, ...]
) -> Attributes:
    source = spec.source
    start = spec.document()["source"]["start"]
    return {
        "topics": list(source.topics),
        "format": source.format,
        "fields": [column.name for column in fields],
        "connection": None if source.files else source.connection,
        "start": start if isinstance(start, str) else msgspec.json.encode(start).decode(),
        "database": source.database,
        "table": source.table,
        "decoding": describe_decoding_path(spec, declared),
    }


def _describe_watermark(watermark: Watermark) -> Attributes:
    idle_after, align = watermark.idle_after_ms, watermark.align
    return {
        "time": None if watermark.follows else _write_time(watermark),
        "strategy": _write_strategy(watermark),
        "where": watermark.where,
        "emit_every": duration_text(watermark.period_ms),
        "idle_after": duration_text(idle_after) if idle_after else None,
        "align_group": align and align.group,
        "max_drift": align and duration_text(align.max_drift_ms),
        "align_every": align and duration_text(align.every_ms),
        "future_skew": duration_text(watermark.future_skew_ms),
        "late_by": "row" if watermark.in_order else None,  # else by epoch
    }


def _write_time(watermark: Watermark) -> str:
    time = watermark.time
    return time if isinstance(time, str) else str(time.column or time.expression)


def _write_strategy(watermark: Watermark) -> str:
    """Return the watermark of a partition as an expression over the times of its rows."""
    greatest = f"MAX({_write_time(watermark)})"
    delay = f" - {duration_text(watermark.delay_ms)}" if watermark.delay_ms else ""
    if watermark.follows:
        return f"the watermark of the job that writes the topic{delay}"
    match watermark.generator:
        case GeneratorClass(path=path):
            return path
        case "bounded":
            return greatest + delay + ("" if watermark.exact else " - 1ms")
        case "monotonous":
            return f"{greatest} - 1ms"
        case "punctuated":
            if isinstance(watermark.marker, Mark):
                return f"{watermark.marker.time}{delay} at a row where {watermark.marker.when}"
            return f"{greatest}{delay} at a row where {watermark.marker}"
        case "lag":
            return f"now{delay}"
        case "automatic":
            return "now, once every emit_every"


def _describe_minibatch(spec: JobSpec) -> Attributes:
    """Return the assigner that acts: its mode, the reason for it, and what ends a bundle."""
    minibatch = spec.minibatch
    row_time = minibatch.clock == "event"
    interval = minibatch.interval_ms if row_time else minibatch.latency_ms
    if row_time:
        because = "minibatch.clock is event: results wait for the watermark"
    elif closes(spec):
        because = "only windows need the watermark, and it closes them between two bundles"
    else:
        because = "no operator needs the watermark"
    return {
        "interval": f"{interval}ms",
        "mode": "RowTime" if row_time else "ProcTime",
        "because": because,
        "size": minibatch.size,
        "max_rows": minibatch.max_rows,
        "ends_bundle": _list_bundle_ends(minibatch),
    }


def _list_bundle_ends(minibatch: MiniBatch) -> list[str]:
    """Return the conditions of which the first one ends a bundle."""
    size = minibatch.size
    if minibatch.clock == "event":
        interval = duration_text(minibatch.interval_ms or 0)
        ends = [f"the watermark reaches the end of an interval of {interval}"]
        return ends if size is None else [*ends, f"results of {size} rows are withheld"]
    if size is None or size == 1:
        ends = ["a message waits and the last bundle is committed"]
    else:
        latency = duration_text(minibatch.latency_ms)
        ends = [f"{size} messages wait", f"a message waits {latency} after the last bundle began"]
    return [*ends, f"{minibatch.max_rows} messages are in it"]


def _describe_exchange(key: list[str], buckets: int) -> Attributes:
    return {"distribution": f"hash[{', '.join(key)}]" if key else "single", "buckets": buckets}


def _describe_window(spec: JobSpec, window: Window) -> Attributes:
    session = window.function == "SESSION"
    return {
        "window": window.function,
        "time": window.time.name,
        "gap" if session else "size": duration_text(window.size_ms),
        "slide": duration_text(window.slide_ms) if window.function == "HOP" else None,
        "step": duration_text(window.slide_ms) if window.function == "CUMULATE" else None,
        "offset": duration_text(window.offset_ms) if window.offset_ms else None,
        "emit": spec.emit,
        "allowed_lateness": write_lateness(spec),
    }


def _describe_aggregate(spec: JobSpec, plan: Plan) -> Attributes:
    group = [named.name for named in plan.group]
    calls = [
        f"{aggregate_label(plan, each, RETRACTING)} AS {each.name}" for each in plan.aggregates
    ]
    ttl = spec.state.ttl_ms
    return {
        "group_by": group,
        "select": [*group, *calls],
        "aggregates": [
            {
                "name": each.name,
                "call": aggregate_sql(plan, each),
                "keeps_values": FUNCTIONS[each.function].read_cost is not ReadCost.CELLS
                or each.distinct,
            }
            | ({"class": each.parameters[0]} if is_class(each) else {})
            for each in plan.aggregates
        ],
        "ttl": duration_text(ttl) if ttl else None,
        "buckets": spec.state.buckets,
        "folding": describe_folding_path(spec, plan),
    }


def _describe_table(spec: JobSpec) -> Attributes:
    mirror = spec.find_mirror_intervals(endless=True).get("")
    return {
        "job": spec.name,
        "durable": spec.durable,
        "retention": duration_text(spec.retention_ms),
        "mirror": None if mirror is None else duration_text(mirror),
    }


def _alias(sql: str, name: str) -> str:
    return sql if sql == name else f"{sql} AS {name}"


def describe_folding_path(spec: JobSpec, plan: Plan) -> str:
    """Return the folding path of a job, and why if it is the slow one."""
    rules = rules_of(spec, withhold=spec.minibatch.clock == "event" or closes(spec))
    why = why_not_columnar(plan, rules)
    return "in arrays, many groups at once" if why is None else f"group by group, because {why}"


def describe_decoding_path(spec: JobSpec, columns: tuple[Column, ...]) -> str:
    """Return the decoding path of a job, and why if it is the slow one."""
    format = SCANNED_FORMATS.get(spec.source.format)
    times = [each.time for each in spec.strategies.values()]
    unknown = [column for column in columns if not is_scannable(column.type, format)]
    if format is None:
        why = f"the format is {spec.source.format}"
    elif unknown:
        why = f"column {unknown[0].name} is {unknown[0].type}"
    elif any(each.in_order for each in spec.strategies.values()):
        why = "the watermark follows the rows in their order"
    elif any(isinstance(time, RowTime) and time.expression is not None for time in times):
        why = "the time of a row is an expression"
    else:
        return "scanned, many messages at once"
    return f"message by message, because {why}"
