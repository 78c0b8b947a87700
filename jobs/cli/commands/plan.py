"""retally plan: prints types, operators, state layout and generated code of a spec."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from jobs.cli.errors import CommandFailed
from jobs.cli.output import print_answer, print_table
from jobs.cli.spec_reading import load_job
from jobs.core.aggregates import ReadCost, Storage, read_cost_of
from jobs.core.fold.program import Program
from jobs.core.job.plan_nodes import describe_folding_path, list_nodes, list_sets, write_lateness
from jobs.core.job.views import JobInputs
from jobs.core.join.stages import Side, list_sides
from jobs.core.plan.tree import Plan
from jobs.core.sql.printer import aggregate_label, expression_sql, window_sql
from schemas.documents.answers import PlanNode
from schemas.spec.duration import duration_text
from schemas.spec.job import JobSpec
from schemas.table.view_path import place_part
from schemas.types.sql_types import SqlType

DISTINCT_COST = "a multiset, which no result reads: its distinct values are counted"
_WRITTEN_ELSEWHERE = ("aggregates", "decoding", "folding")  # in the operators' lines


def run(options: argparse.Namespace) -> None:
    spec, plans = load_job(options.spec)
    if options.view is not None and options.view not in plans:
        known = ", ".join(name for name in plans if name) or "the job has none"
        raise CommandFailed(f"there is no view {options.view!r}; known: {known}")
    chosen = plans if options.view is None else {options.view: plans[options.view]}
    specs = spec.view_specs
    trees = JobInputs.of(spec, plans).trees
    documents = {
        name: describe_plan(
            specs[name],
            plan,
            Program(plan),
            list_sides(tree for tree in trees if name in tree.views),
        )
        | ({"view": name} if name else {})
        for name, plan in chosen.items()
    }
    rows = [*documents.values()]
    if options.output == "json" and options.view is None and list(plans) != [""]:
        rows = [{"views": documents}]
    print_answer(options.output, rows, text=lambda each: _print_plan(specs, each))


def _print_plan(specs: Mapping[str, JobSpec], document: Mapping[str, Any]) -> None:
    view = document.get("view", "")
    named = f"{document['job']}.{view}" if view else document["job"]
    print(f"{named}: {' '.join(specs[view].query.split())}\n")
    result = [[each["name"], each["type"], each["is"]] for each in document["result"]]
    print_table(["result column", "type", "is"], result)
    print("\n".join(document["topology"]) + "\n")
    print(f"decoding: {document['decoding']}\nfolding: {document['folding']}\n")
    state = [[each["name"], each["type"], each["part"]] for each in document["state"]]
    print_table(["state column", "type", "part"], state)
    if costs := [[each["name"], each["cost"]] for each in document["costs"]]:
        print_table(["aggregate", "keeps of each group, and reads when it changes"], costs)
    print(document["code"])


def describe_plan(
    spec: JobSpec, plan: Plan, program: Program, sides: Sequence[Side]
) -> dict[str, Any]:
    types = {named.name: named.type for named in plan.group}
    types |= dict(plan.kept_results)
    meaning = {named.name: expression_sql(named.expression) for named in plan.group}
    meaning |= {each.name: aggregate_label(plan, each) for each in plan.aggregates}
    meaning |= {named.name: expression_sql(named.expression, plan) for named in plan.computed}
    nodes = list_nodes(spec, plan)
    return {
        "job": spec.name,
        "fingerprint": plan.fingerprint,
        "source": [{"name": c.name, "type": str(c.type)} for c in plan.columns],
        "result": [
            {"name": name, "type": str(types[name]), "is": meaning[name]} for name in plan.output
        ],
        "hidden": list(plan.unselected),
        "having": None if plan.having is None else expression_sql(plan.having, plan),
        "grouping_sets": list_sets(plan) if plan.grouping_sets > 1 else [],
        "window": _describe_window(spec, plan),
        "nodes": msgspec.to_builtins(nodes),
        "topology": describe_topology(nodes),
        "decoding": "; ".join(_list_decoding(nodes)),
        "folding": describe_folding_path(spec, plan),
        "costs": _list_costs(plan),
        "state": [
            *_list_state_columns(plan, program),
            *(
                each | {"part": place_part(each["part"], side.name)}
                for side in sides
                for each in _list_state_columns(side.state, Program(side.state))
            ),
        ],
        "buckets": spec.state.buckets,
        "code": program.source,
    }


def _list_decoding(nodes: Sequence[PlanNode]) -> list[str]:
    """Return the decoding path of each source, with its name if there are several."""
    scans = [node for node in nodes if "decoding" in node.attributes]
    paths = {node.id.removeprefix("source-"): node.attributes["decoding"] for node in scans}
    return [f"{name}: {path}" if len(paths) > 1 else path for name, path in paths.items()]


def describe_topology(nodes: Sequence[PlanNode]) -> list[str]:
    """Return the operators, the last first, as Flink's EXPLAIN prints them."""
    by_name = {node.id: node for node in nodes}
    return list(_draw(nodes[-1], by_name, "", ""))


def _draw(node: PlanNode, nodes: Mapping[str, PlanNode], before: str, below: str) -> Iterator[str]:
    """Yield a node and those that it reads; a branch that is not the last is drawn as `:-`."""
    yield before + _write_node(node)
    for name in node.predecessors:
        last = name == node.predecessors[-1]
        branch, trunk = ("+- ", "   ") if last else (":- ", ":  ")
        yield from _draw(nodes[name], nodes, below + branch, below + trunk)


def _write_node(node: PlanNode) -> str:
    """Return a node as a line: the attributes that it uses and that have no line of their own."""
    written = []
    for name, value in node.attributes.items():
        if value in (None, []) or name in _WRITTEN_ELSEWHERE:
            continue
        shown = str(value).lower() if isinstance(value, bool) else value
        if isinstance(value, list):
            shown = ", ".join(value)
        first, *rest = name.split("_")
        written.append(f"{first}{''.join(map(str.title, rest))}=[{shown}]")
    return f"{node.type}({', '.join(written)})"


def _describe_window(spec: JobSpec, plan: Plan) -> dict[str, str | int | None] | None:
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

    group = plan.key
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
