"""retally plan: what a spec becomes: types, operators, state layout and code."""

from __future__ import annotations

import argparse
from typing import Any

from jobs.cli.output import print_json, print_table
from jobs.cli.spec_reading import load_job
from jobs.core.aggregates import Reading, Storage, reading_of
from jobs.core.fold.program import Program
from jobs.core.job.window_rules import closes
from jobs.core.plan.tree import Plan, Window
from jobs.core.sql.grouping_sets import key_sets
from jobs.core.sql.printer import aggregate_shown, expression_sql, window_sql
from schemas.spec.duration import duration_text
from schemas.spec.job import JobSpec
from schemas.types.sql_types import SqlType

DISTINCT_COST = "a multiset, of which nothing is read for a result: its distinct values are counted"
RETRACTING = "_RETRACT"  # how Flink marks an aggregate that takes rows back


def run(options: argparse.Namespace) -> None:
    spec, plan = load_job(options.spec)
    program = Program(plan)
    document = plan_document(spec, plan, program)
    if options.json:
        print_json(document)
        return
    print(f"{spec.name}: {' '.join(spec.query.split())}\n")
    result = document["result"]
    columns = [("result column", False), ("type", False), ("is", False)]
    print_table(columns, [[each["name"], each["type"], each["is"]] for each in result])
    print("\n".join(document["topology"]) + "\n")
    columns = [("state column", False), ("type", False), ("part", False)]
    print_table(columns, [[c["name"], c["type"], c["part"]] for c in document["state"]])
    costs = document["costs"]
    if costs:
        columns = [("aggregate", False), ("keeps of each group, and reads when it changes", False)]
        print_table(columns, [[each["name"], each["cost"]] for each in costs])
    print(program.source)


def plan_document(spec: JobSpec, plan: Plan, program: Program) -> dict[str, Any]:
    types = {named.name: named.type for named in plan.group}
    types |= dict(plan.kept)
    meaning = {named.name: expression_sql(named.expression) for named in plan.group}
    meaning |= {each.name: _call(plan, i, "") for i, each in enumerate(plan.aggregates)}
    meaning |= {named.name: expression_sql(named.expression, plan) for named in plan.computed}
    return {
        "job": spec.name,
        "fingerprint": plan.fingerprint,
        "source": [{"name": c.name, "type": str(c.type)} for c in plan.columns],
        "result": [
            {"name": name, "type": str(types[name]), "is": meaning[name]} for name in plan.output
        ],
        "hidden": list(plan.hidden),
        "having": None if plan.having is None else expression_sql(plan.having, plan),
        "grouping_sets": _sets(plan) if plan.grouping_sets > 1 else [],
        "window": _window_document(spec, plan),
        "topology": topology(spec, plan),
        "costs": _costs(plan),
        "state": _state_columns(plan, program),
        "buckets": spec.state.buckets,
        "code": program.source,
    }


def topology(spec: JobSpec, plan: Plan) -> list[str]:
    """The operators, the last one first, as Flink's EXPLAIN shows them."""
    group = ", ".join(named.name for named in plan.group)
    calls = [
        f"{_call(plan, index, RETRACTING)} AS {each.name}"
        for index, each in enumerate(plan.aggregates)
    ]
    select = ", ".join([*(named.name for named in plan.group), *calls])
    read = [
        _aliased(expression_sql(named.expression), named.name)
        for named in (*plan.group, *plan.arguments)
    ]
    where = f", where=[{expression_sql(plan.where)}]" if plan.where is not None else ""
    mode, interval = "ProcTime", spec.minibatch.latency_ms
    if spec.minibatch.clock == "event":
        mode, interval = "RowTime", spec.minibatch.interval_ms or 0
    operators = [
        f"GroupAggregate({f'groupBy=[{group}], ' if group else ''}select=[{select}])",
        f"Exchange(distribution=[{f'hash[{group}]' if group else 'single'}], "
        f"buckets=[{spec.state.buckets}])",
        f"Calc(select=[{', '.join(dict.fromkeys(read))}]{where})",
        f"MiniBatchAssigner(interval=[{interval}ms], mode=[{mode}]"
        + (f", size=[{spec.minibatch.size}])" if spec.minibatch.size else ")"),
        f"TableSourceScan(topics=[{', '.join(spec.source.topics)}], format=[{spec.source.format}], "
        f"fields=[{', '.join(column.name for column in plan.image)}])",
    ]
    if plan.primary_key:  # as Flink calls it
        key = ", ".join(column.name for column in plan.primary_key)
        operators[-2:-2] = [
            f"ChangelogNormalize(key=[{key}])",
            f"Exchange(distribution=[hash[{key}]], buckets=[{spec.state.buckets}])",
        ]
    if plan.computes:
        shown = {named.name: expression_sql(named.expression, plan) for named in plan.computed}
        columns = [_aliased(shown.get(name, name), name) for name in plan.output]
        having = f", where=[{expression_sql(plan.having, plan)}]" if plan.having else ""
        operators.insert(0, f"Calc(select=[{', '.join(columns)}]{having})")
    if spec.sink is not None:
        operators.insert(
            0,
            f"Sink(topic=[{spec.sink.topic}], format=[{spec.sink.format}], "
            f"delivery=[{spec.sink.delivery}])",
        )
    if plan.grouping_sets > 1:
        sets = ", ".join("{" + ", ".join(each) + "}" for each in _sets(plan))
        operators.insert(-2, f"Expand(sets=[{sets}])")
    if plan.window is not None:  # where Flink shows it, though WHERE is evaluated first
        operators.insert(-2, f"WindowAssigner({_window_text(spec, plan.window)})")
    return [_indented(depth, text) for depth, text in enumerate(operators)]


def _sets(plan: Plan) -> list[list[str]]:
    """The grouping sets, by their columns."""
    return [list(dict.fromkeys(map(expression_sql, each))) for each in key_sets(plan)]


def _window_document(spec: JobSpec, plan: Plan) -> dict[str, Any] | None:
    window = plan.window
    if window is None:
        return None
    return {
        "window": window_sql(window),
        "time": window.time.name,
        "size": duration_text(window.size_ms),
        "slide": duration_text(window.slide_ms),
        "of_a_row": window.of_a_row,
        "emit": spec.emit,
        "allowed_lateness": lateness_text(spec),
    }


def _window_text(spec: JobSpec, window: Window) -> str:
    length = "gap" if window.function == "SESSION" else "size"
    times = f"time=[{window.time.name}], {length}=[{duration_text(window.size_ms)}]"
    if window.function == "HOP":
        times += f", slide=[{duration_text(window.slide_ms)}]"
    lateness = lateness_text(spec)
    open_for = f", allowedLateness=[{lateness}]" if lateness is not None else ""
    return f"window=[{window.function}], {times}, emit=[{spec.emit}]{open_for}"


def lateness_text(spec: JobSpec) -> str | None:
    """How long a window stays open behind its end; None: for ever."""
    return duration_text(spec.allowed_lateness_ms or 0) if closes(spec) else None


def _indented(depth: int, text: str) -> str:
    return text if depth == 0 else "   " * (depth - 1) + "+- " + text


def _aliased(sql: str, name: str) -> str:
    return sql if sql == name else f"{sql} AS {name}"


def _call(plan: Plan, index: int, suffix: str) -> str:
    return aggregate_shown(plan, plan.aggregates[index], suffix)


def _costs(plan: Plan) -> list[dict[str, str]]:
    """What keeps more of a group than a few numbers."""
    costs = []
    for each in plan.aggregates:
        if each.argument is None:
            continue
        reading = reading_of(each, plan.arguments[each.argument].type)
        if each.distinct and reading is Reading.CELLS:
            costs.append({"name": each.name, "cost": DISTINCT_COST})
        elif reading is not Reading.CELLS:
            costs.append({"name": each.name, "cost": reading.cost})
    return costs


def _state_columns(plan: Plan, program: Program) -> list[dict[str, str]]:
    """The columns of the job's table that hold the state of its groups."""

    def column(part: str, name: str, sql_type: SqlType | str) -> dict[str, str]:
        return {"part": part, "name": name, "type": str(sql_type)}

    group = [(named.name, named.type) for named in plan.group]
    cell_types = {Storage.BIGINT: "BIGINT", Storage.TEXT: "STRING (digits)"}
    found = [column("accumulators", name, sql_type) for name, sql_type in group]
    found += [column("accumulators", name, sql_type) for name, sql_type in plan.kept]
    found += [
        column("accumulators", cell.name, cell_types.get(cell.storage, str(cell.decimal_type)))
        for cell in program.cells
    ]
    if program.stored:
        found += [column("multisets", name, sql_type) for name, sql_type in group]
        for index in program.stored:
            argument = plan.arguments[index]
            found.append(column("multisets", f"value_{argument.name}", argument.type))
        found.append(column("multisets", "multiplicity", "BIGINT"))
    return found
