"""retally plan: prints types, operators, state layout and generated code of a spec."""

from __future__ import annotations

import argparse
from typing import Any

from jobs.cli.output import print_json, print_table
from jobs.cli.spec_reading import load_job
from jobs.core.aggregates import ReadCost, Storage, read_cost_of
from jobs.core.fold.program import Program
from jobs.core.job.decoding import describe_decoding
from jobs.core.job.folding import describe_folding
from jobs.core.job.window_rules import closes
from jobs.core.plan.tree import Plan, Window
from jobs.core.sql.grouping_sets import sets_of_plan
from jobs.core.sql.printer import aggregate_label, expression_sql, window_sql
from schemas.spec.duration import duration_text
from schemas.spec.job import JobSpec
from schemas.types.sql_types import SqlType

DISTINCT_COST = "a multiset, which no result reads: its distinct values are counted"
RETRACTING = "_RETRACT"  # how Flink marks an aggregate that retracts rows


def run(options: argparse.Namespace) -> None:
    spec, plan = load_job(options.spec)
    program = Program(plan)
    document = describe_plan(spec, plan, program)
    if options.json:
        print_json(document)
        return
    print(f"{spec.name}: {' '.join(spec.query.split())}\n")
    result = document["result"]
    columns = [("result column", False), ("type", False), ("is", False)]
    print_table(columns, [[each["name"], each["type"], each["is"]] for each in result])
    print("\n".join(document["topology"]) + "\n")
    print(f"decoding: {document['decoding']}\nfolding: {document['folding']}\n")
    columns = [("state column", False), ("type", False), ("part", False)]
    print_table(columns, [[c["name"], c["type"], c["part"]] for c in document["state"]])
    costs = document["costs"]
    if costs:
        columns = [("aggregate", False), ("keeps of each group, and reads when it changes", False)]
        print_table(columns, [[each["name"], each["cost"]] for each in costs])
    print(program.source)


def describe_plan(spec: JobSpec, plan: Plan, program: Program) -> dict[str, Any]:
    types = {named.name: named.type for named in plan.group}
    types |= dict(plan.kept_results)
    meaning = {named.name: expression_sql(named.expression) for named in plan.group}
    meaning |= {each.name: _write_call(plan, i, "") for i, each in enumerate(plan.aggregates)}
    meaning |= {named.name: expression_sql(named.expression, plan) for named in plan.computed}
    return {
        "job": spec.name,
        "fingerprint": plan.fingerprint,
        "source": [{"name": c.name, "type": str(c.type)} for c in plan.columns],
        "result": [
            {"name": name, "type": str(types[name]), "is": meaning[name]} for name in plan.output
        ],
        "hidden": list(plan.unselected),
        "having": None if plan.having is None else expression_sql(plan.having, plan),
        "grouping_sets": _list_sets(plan) if plan.grouping_sets > 1 else [],
        "window": _describe_window(spec, plan),
        "topology": describe_topology(spec, plan),
        "decoding": describe_decoding(spec, plan.columns),
        "folding": describe_folding(spec, plan),
        "costs": _list_costs(plan),
        "state": _list_state_columns(plan, program),
        "buckets": spec.state.buckets,
        "code": program.source,
    }


def describe_topology(spec: JobSpec, plan: Plan) -> list[str]:
    """Return the operators, the last first, as Flink's EXPLAIN prints them."""
    group = ", ".join(named.name for named in plan.group)
    calls = [
        f"{_write_call(plan, index, RETRACTING)} AS {each.name}"
        for index, each in enumerate(plan.aggregates)
    ]
    select = ", ".join([*(named.name for named in plan.group), *calls])
    read = [
        _alias(expression_sql(named.expression), named.name)
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
    if plan.has_computed:
        shown = {named.name: expression_sql(named.expression, plan) for named in plan.computed}
        columns = [_alias(shown.get(name, name), name) for name in plan.output]
        having = f", where=[{expression_sql(plan.having, plan)}]" if plan.having else ""
        operators.insert(0, f"Calc(select=[{', '.join(columns)}]{having})")
    if spec.sink is not None:
        operators.insert(
            0,
            f"Sink(topic=[{spec.sink.topic}], format=[{spec.sink.format}], "
            f"delivery=[{spec.sink.delivery}])",
        )
    if plan.grouping_sets > 1:
        sets = ", ".join("{" + ", ".join(each) + "}" for each in _list_sets(plan))
        operators.insert(-2, f"Expand(sets=[{sets}])")
    if plan.window is not None:  # where Flink prints it, although WHERE is evaluated first
        operators.insert(-2, f"WindowAssigner({_write_window(spec, plan.window)})")
    return [_indent(depth, text) for depth, text in enumerate(operators)]


def _list_sets(plan: Plan) -> list[list[str]]:
    """Return the columns of each grouping set."""
    return [list(dict.fromkeys(map(expression_sql, each))) for each in sets_of_plan(plan)]


def _describe_window(spec: JobSpec, plan: Plan) -> dict[str, Any] | None:
    window = plan.window
    if window is None:
        return None
    return {
        "window": window_sql(window),
        "time": window.time.name,
        "size": duration_text(window.size_ms),
        "slide": duration_text(window.slide_ms),
        "of_a_row": window.windows_per_row,
        "emit": spec.emit,
        "allowed_lateness": write_lateness(spec),
    }


def _write_window(spec: JobSpec, window: Window) -> str:
    length = "gap" if window.function == "SESSION" else "size"
    times = f"time=[{window.time.name}], {length}=[{duration_text(window.size_ms)}]"
    if window.function == "HOP":
        times += f", slide=[{duration_text(window.slide_ms)}]"
    lateness = write_lateness(spec)
    open_for = f", allowedLateness=[{lateness}]" if lateness is not None else ""
    return f"window=[{window.function}], {times}, emit=[{spec.emit}]{open_for}"


def write_lateness(spec: JobSpec) -> str | None:
    """Return how long a window stays open after its end; None: for ever."""
    return duration_text(spec.allowed_lateness_ms or 0) if closes(spec) else None


def _indent(depth: int, text: str) -> str:
    return text if depth == 0 else "   " * (depth - 1) + "+- " + text


def _alias(sql: str, name: str) -> str:
    return sql if sql == name else f"{sql} AS {name}"


def _write_call(plan: Plan, index: int, suffix: str) -> str:
    return aggregate_label(plan, plan.aggregates[index], suffix)


def _list_costs(plan: Plan) -> list[dict[str, str]]:
    """Return the aggregates that keep more than a few numbers for a group."""
    costs = []
    for each in plan.aggregates:
        if each.argument is None:
            continue
        reading = read_cost_of(each, plan.arguments[each.argument].type)
        if each.distinct and reading is ReadCost.CELLS:
            costs.append({"name": each.name, "cost": DISTINCT_COST})
        elif reading is not ReadCost.CELLS:
            costs.append({"name": each.name, "cost": reading.cost})
    return costs


def _list_state_columns(plan: Plan, program: Program) -> list[dict[str, str]]:
    """Return the columns of the job's table that hold the state of its groups."""

    def column(part: str, name: str, sql_type: SqlType | str) -> dict[str, str]:
        return {"part": part, "name": name, "type": str(sql_type)}

    group = [(named.name, named.type) for named in plan.group]
    cell_types = {Storage.BIGINT: "BIGINT", Storage.TEXT: "STRING (digits)"}
    found = [column("accumulators", name, sql_type) for name, sql_type in group]
    found += [column("accumulators", name, sql_type) for name, sql_type in plan.kept_results]
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
