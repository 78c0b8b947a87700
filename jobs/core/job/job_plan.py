"""The plan of a job: the plan of its query, completed from the rest of the spec."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from jobs.core.fold.program import state_names
from jobs.core.plan.relations import columns_in, list_scans
from jobs.core.plan.tree import Column, Plan, Scan
from jobs.core.rows.projection import row_projection
from jobs.core.sql.aggregate_calls import AGGREGATES, OperatorClass
from jobs.core.sql.dialect import Refusal
from jobs.core.sql.expression_nodes import KNOWN
from jobs.core.sql.grouping_sets import sets_of_plan, with_set_numbers
from jobs.core.sql.problems import QueryProblem, problem_at
from jobs.core.sql.select import QueryError, parse_joins, parse_query
from jobs.core.values.change import Row
from schemas.spec.job import JobSpec
from schemas.spec.source import CONSTANT_METADATA, FORMATS_WITHOUT_TABLES, METADATA_TYPES
from schemas.types.sql_types import SqlType


def plan_of(spec: JobSpec) -> Plan:
    """Return the plan of a job's own query; raise QueryError with the problems of the query."""
    if not spec.query:
        names = ", ".join(spec.views or ())
        message = f"job {spec.name!r} has no query of its own; name one of its views: {names}"
        raise QueryError([QueryProblem(message, 1, 1)])
    plan = _parse(spec)
    for source, used in _list_used(spec, plan):
        if (problem := metadata_problem(source, used)) is not None:
            raise _refusal_at(spec.query, *problem)
    if plan.relation is None:
        source = spec.source_specs[plan.source]
        columns, key = source_columns(source), source.primary_key
        if source.dedupe is not None and key:
            plan = replace(plan, primary_key=tuple(columns[name] for name in key))
    if spec.empty == "row":
        plan = replace(plan, empty_keys=tuple(_list_empty_keys(plan)))
    _check_names(spec.query, plan)
    return plan


def empty_row_problems(spec: JobSpec, plan: Plan) -> dict[tuple[str, ...], str]:
    """Return the keys of a spec that do not fit `empty: row`, with the reasons."""
    wrong = {
        ("empty",): (
            not plan.empty_keys,
            "row belongs to a query without GROUP BY, or with the grouping set (); remove it",
        ),
        ("state", "ttl"): (
            spec.state.ttl_ms > 0,
            "the row of an empty input must not expire; remove ttl, or empty: row",
        ),
        ("early_retractions",): (
            spec.drops_early,
            "drop is for results as in Flink, which has no row without input; use keep, or remove "
            "empty: row",
        ),
    }
    if spec.empty == "none":
        return {}
    return {key: reason for key, (is_wrong, reason) in wrong.items() if is_wrong}


def _list_empty_keys(plan: Plan) -> Iterator[Row]:
    """Yield the keys of the grouping sets without columns; () without GROUP BY."""
    if not plan.group:
        yield ()
    if plan.grouping_sets == 1:
        return
    over_sets = with_set_numbers(replace(plan, where=None, arguments=()))
    project = row_projection(over_sets)
    for number, members in enumerate(sets_of_plan(plan)):
        if not members and (found := project((*[None] * len(plan.used), number))) is not None:
            yield found[0]


def _parse(spec: JobSpec) -> Plan:
    """Return the plan of the query; over one of several sources, with its name."""
    classes = {
        name: OperatorClass(each.path, each.returns, each.timers)
        for name, each in (spec.functions or {}).items()
    }
    for name in classes:
        if name in KNOWN or name in AGGREGATES:
            raise _refusal_at(spec.query, name, f"functions.{name}: retally has {name} itself")
    if spec.sources is None:
        return parse_query(spec.query, spec.columns, metadata_columns(spec), classes)
    sources = spec.source_specs
    plan = parse_joins(
        spec.query,
        {name: each.columns | metadata_columns(each) for name, each in sources.items()},
        classes,
    )
    if not isinstance(plan.relation, Scan):
        return plan
    only = sources[plan.relation.source]
    alone = parse_query(spec.query, only.columns, metadata_columns(only), classes)
    return replace(alone, source=plan.relation.source)


def source_columns(spec: JobSpec) -> dict[str, Column]:
    """Return the columns of an only source by name: the declared ones, then its metadata."""
    columns = spec.columns | metadata_columns(spec)
    return {name: Column(name, kind) for name, kind in columns.items()}


def _list_used(spec: JobSpec, plan: Plan) -> Iterator[tuple[JobSpec, Iterable[Column]]]:
    """Yield the spec of each source that the query reads, with the columns that it uses."""
    specs = spec.source_specs
    if plan.relation is None:
        yield specs[plan.source], plan.used
        return
    for scan in list_scans(plan.relation):
        read = [each.expression for each in scan.outputs]
        yield specs[scan.source], columns_in([*read, scan.where])


def _check_names(sql: str, plan: Plan) -> None:
    """Refuse a result column that has the name of a state column."""
    reserved = {name.lower() for name in state_names(plan)}
    for name in (*(named.name for named in plan.group), *(name for name, _ in plan.kept_results)):
        if name.lower() in reserved:
            message = f"`{name}` is a column of the job's own table"
            raise _refusal_at(sql, name, message, f"AS {name}_, or another name")


def _refusal_at(sql: str, name: str, message: str, hint: str | None = None) -> QueryError:
    found = re.search(rf"\b{name}\b", sql, re.IGNORECASE)
    return QueryError([problem_at(sql, Refusal(message, found and found.start(), hint))])


def metadata_columns(spec: JobSpec) -> dict[str, SqlType]:
    """Return the metadata that a query may name; a declared column of the same name is no such."""
    return {name: kind for name, kind in METADATA_TYPES.items() if name not in spec.columns}


def metadata_problem(spec: JobSpec, used: Iterable[Column]) -> tuple[str, str] | None:
    """Return a metadata column that the query may not use, with the reason; None if all is well.

    A row stays in its table, so __database and __table are the same for all of its changes. The
    times of a message are not: the -U of an update has the time of the update, and would retract a
    value that no group has. With `dedupe: pk` the job retracts the last image of a row as it was
    stored, so there they are the times of the message that last changed the row.
    """
    offered, format = metadata_columns(spec), spec.source.format
    for name in (column.name for column in used if column.name in offered):
        if format in FORMATS_WITHOUT_TABLES:
            return name, f"`{name}` is metadata that {format} messages do not have"
        if spec.source.snapshot is not None:
            return name, f"`{name}` is metadata, and the rows of source.snapshot have no message"
        if name in CONSTANT_METADATA:
            continue
        if spec.dedupe is None:
            return name, (
                f"`{name}` is the time of a message, and an update retracts its row in another "
                "message, with another time; use a column of the row, or dedupe: pk, which "
                "retracts a row with the time it had"
            )
    return None
