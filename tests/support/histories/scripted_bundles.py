"""The bundles of a change script as the core takes them, and its plan and rules."""

from __future__ import annotations

from jobs.core.fold.in_memory import Bundle
from jobs.core.fold.rules import Rules, rules_of
from jobs.core.job import job_plan
from jobs.core.plan.tree import Plan
from jobs.core.sql.grouping_sets import set_number_projection
from jobs.core.values.change import Changes, Row
from jobs.offline.replay import Arrival, StepReader
from schemas.spec.file import load_spec
from tests.support.histories.change_scripts import Script, ScriptedBundle


def plan_of(script: Script) -> Plan:
    return job_plan.plan_of(load_spec(script.spec()))


def rules_of_script(script: Script) -> Rules:
    return rules_of(load_spec(script.spec()), withhold=script.event_clock)


def bundles_of(script: Script, plan: Plan) -> list[Bundle]:
    """The script's bundles; offsets run on through all of them, as in a topic."""
    reader = StepReader(load_spec(script.spec()), {"": plan})
    return [_bundle(reader, script, scripted, plan) for scripted in script.bundles]


def _bundle(reader: StepReader, script: Script, scripted: ScriptedBundle, plan: Plan) -> Bundle:
    bundle = Bundle()
    for step in reader.read(script.steps(scripted)):
        assert isinstance(step, Arrival)
        assert isinstance(step.decoded, Changes), step.decoded
        changes = [
            (sign, each) for sign, row in step.decoded.changes for each in rows_of(plan, row)
        ]
        bundle.add(step.topic_partition, step.offset, changes)
    return bundle


def rows_of(plan: Plan, row: Row) -> list[Row]:
    """A row once for each grouping set."""
    return [row] if plan.grouping_sets == 1 else set_number_projection(plan)(row)
