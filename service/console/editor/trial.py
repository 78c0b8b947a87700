"""Trial run: the changelog that a job would emit for some messages, without starting it.

    messages ──► the job's decoders ──► rows, or a reason ──► joins ──► WHERE, group, arguments
                                     changelog of one bundle ◄── fold in memory ◄──┘

The trial uses the same core as the job, so its rows equal those that the job would emit if it read
only these messages.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from jobs.core.aggregates.operator_class import AggregateFailed
from jobs.core.fold.fold import ChangelogRow
from jobs.core.fold.laws import BrokenLaw
from jobs.core.formats.registry import MessageDecoder, MessageRules
from jobs.core.job.in_memory import Event, InMemoryJob, RowExpander, list_evaluated_rows
from jobs.core.job.views import sources_of
from jobs.core.job.window_rules import closing_of
from jobs.core.join.row_joins import RowJoins
from jobs.core.plan.relations import list_scans
from jobs.core.plan.tree import Plan
from jobs.core.sql.printer import expression_sql
from jobs.core.values.change import (
    Changes,
    ColumnGone,
    Decoded,
    Filtered,
    Op,
    Rejected,
    Skipped,
    Truncated,
)
from jobs.core.values.json_values import renderer
from jobs.reading.row_shape import RowShape
from jobs.topics.samples import Sample
from jobs.topics.schema_registry import RegistryUnavailable, find_by
from schemas.limits import SAMPLE_BYTES_MAX
from schemas.spec.connections import Connections
from schemas.spec.job import JobSpec
from schemas.table.epoch import TopicPartition

_RAW_CHARACTERS = 2_000
_ROWS_SHOWN = 20
_ROWS_IN_LINE = 2
_NONE_JOINED = "No changelog rows: these few messages leave no joined row."


@dataclass(frozen=True, slots=True)
class TriedMessage:
    sample: Sample
    raw: str  # truncated if long
    outcome: str  # rows, rejected, skipped, filtered
    reason: str | None
    rows: tuple[tuple[str, str], ...]  # sign, and the row as JSON
    source: str = ""  # its name, if the job has several

    @property
    def line(self) -> str:
        """The rows in one line: sign and values."""
        rows = (f"{sign}({', '.join(_values(row))})" for sign, row in self.rows[:_ROWS_IN_LINE])
        more = len(self.rows) - _ROWS_IN_LINE
        return " ".join(rows) + (f" and {more} more" if more > 0 else "")

    @property
    def tone(self) -> str:
        return {"rows": "good", "rejected": "bad"}.get(self.outcome, "quiet")


@dataclass(frozen=True, slots=True)
class Trial:
    messages: tuple[TriedMessage, ...]
    changelog: tuple[tuple[str, str], ...]  # op, and the row as JSON
    no_changelog: str | None  # the reason for an empty changelog
    hidden: str | None = None  # the groups that HAVING hides


class _Read(NamedTuple):
    """A message as a source reads it."""

    source: str
    sample: Sample
    decoded: Decoded


def run_trial(
    spec: JobSpec, plan: Plan, samples: Sequence[Sample], connections: Connections
) -> Trial:
    """Decode each message by each source that reads it, and fold all of them as one bundle."""
    specs, plans = spec.source_specs, _list_read(spec, plan)
    rules = {name: MessageRules.of(specs[name]) for name in plans}
    decoders = {
        name: rules[name].decoder(
            each.columns, each.image, find_schema=find_by(connections, specs[name])
        )
        for name, each in plans.items()
    }
    renderers = {
        name: [(column.name, renderer(column.type)) for column in each.image]
        for name, each in plans.items()
    }
    decoded: list[_Read] = []
    messages: list[TriedMessage] = []
    for sample in samples:
        read = [
            _Read(name, sample, _decode(decoder, sample))
            for name, decoder in decoders.items()
            if sample.topic in specs[name].source.topics
        ]
        decoded += read
        found = [_describe(each, specs[each.source], renderers[each.source]) for each in read]
        messages += [each for each in found if each.outcome != "filtered"] or found[:1]
    try:
        changelog = _fold(spec, plan, decoded)
    except _NoChangelog as reason:
        return Trial(tuple(messages), (), str(reason))
    shape = RowShape(plan, safe=True)
    rows = tuple((str(op), _json(shape.row(key, row))) for op, key, row in changelog)
    hidden = None
    if plan.having is not None:
        without = _fold(spec, replace(plan, having=None), decoded)
        count = len(_live_groups(without)) - len(_live_groups(changelog))
        groups = "1 group" if count == 1 else f"{count} groups"
        hidden = f"HAVING {expression_sql(plan.having, plan)} hides {groups}."
    elif plan.relation is not None and not changelog:
        hidden = _NONE_JOINED
    return Trial(tuple(messages), rows[:_ROWS_SHOWN], None, hidden)


def _list_read(spec: JobSpec, plan: Plan) -> dict[str, Plan]:
    """Return the plan for decoding each source that the query reads."""
    plans = sources_of(spec, plan)
    scans = () if plan.relation is None else list_scans(plan.relation)
    names = {scan.source for scan in scans} or {plan.source}
    return {name: each for name, each in plans.items() if name in names}


def _live_groups(changelog: Sequence[ChangelogRow]) -> set[str]:
    """Return the groups that are left after all rows."""
    last = {repr(key): op for op, key, _ in changelog}
    return {key for key, op in last.items() if op is not Op.DELETE}


class _NoChangelog(Exception):
    """The trial cannot compute a changelog; the message is the reason."""


def _decode(decoder: MessageDecoder, sample: Sample) -> Decoded:
    if sample.cut:
        size = SAMPLE_BYTES_MAX // 1024**2
        return Skipped(f"the message is longer than {size} MiB, so a trial run leaves it out")
    try:
        return decoder.explain(sample.value, sample.key)
    except RegistryUnavailable as error:
        return Skipped(str(error))


def _describe(
    read: _Read, spec: JobSpec, renderers: Sequence[tuple[str, Callable[[Any], Any]]]
) -> TriedMessage:
    found, sample = read.decoded, read.sample
    outcome, reason, rows = "skipped", None, []
    if isinstance(found, Changes):
        outcome = "rows"
        for sign, row in found.changes[:_ROWS_SHOWN]:
            named = {
                name: render(value) for (name, render), value in zip(renderers, row, strict=True)
            }
            rows.append(("+" if sign > 0 else "-", _json(named)))
    elif isinstance(found, Rejected):
        outcome, reason = "rejected", f"{found.reason} ({found.path})"
    elif isinstance(found, ColumnGone):
        outcome, reason = "rejected", f"column {found.column!r}: {found.why}"
    elif isinstance(found, Filtered):
        outcome, reason = "filtered", "another database or table than the spec reads"
    elif isinstance(found, Truncated):
        applies = _applied_at(found, spec) is not None
        why = "the rows from before it are retracted" if applies else found.rejected.reason
        outcome, reason = "rows" if applies else "rejected", f"{found.statement}: {why}"
    else:
        reason = found.why
    return TriedMessage(sample, _show_raw(sample), outcome, reason, tuple(rows), read.source)


def _applied_at(found: Truncated, spec: JobSpec) -> int | None:
    """Return the time of a TRUNCATE that retracts rows; None if it is rejected."""
    return found.es if spec.on_truncate == "apply" else None


def _show_raw(sample: Sample) -> str:
    """Return the beginning of the message as text."""
    raw = (sample.value or b"")[: 4 * _RAW_CHARACTERS].decode("utf-8", "replace")
    return raw[:_RAW_CHARACTERS]


def _fold(spec: JobSpec, plan: Plan, decoded: Sequence[_Read]) -> list[ChangelogRow]:
    if not any(isinstance(each.decoded, Changes) and each.decoded.changes for each in decoded):
        raise _NoChangelog("None of these messages has rows for this job.")
    if closing_of(spec, plan) is not None:  # nothing is emitted before the watermark
        raise _NoChangelog("A trial run does not close windows; start the job to see results.")
    rows, plans = RowExpander(plan), _list_read(spec, plan)
    joins = None if plan.relation is None else RowJoins(plan, plans)
    job = InMemoryJob(spec, plan, rows, joins=joins)
    events: list[Event] = []
    try:
        for source, sample, found in reversed(decoded):  # as a job reads them: oldest first
            at = TopicPartition(sample.topic, sample.partition), sample.offset
            if isinstance(found, Changes):
                for row in list_evaluated_rows(plans[source], found.changes):
                    reason = rows.failure(row) if joins is None else joins.failure(source, row)
                    if reason is not None:
                        raise _NoChangelog(f"An expression fails on one of the rows: {reason}")
                events += job.take(*at, found.changes, found.es, source)
            elif isinstance(found, Truncated) and (
                (time := _applied_at(found, spec.source_specs[source])) is not None
            ):
                events += job.truncate(*at, time, found.ts, source)
        events += job.end_bundle()
    except AggregateFailed as failed:
        raise _NoChangelog(f"No changelog: {failed}.") from None
    except BrokenLaw:  # the inserts of these rows are missing
        raise _NoChangelog("These messages change rows of earlier messages.") from None
    return [event for event in events if isinstance(event, tuple)]


def _values(row: str) -> list[str]:
    return [
        f"{name}={'NULL' if value is None else value}" for name, value in json.loads(row).items()
    ]


def _json(row: Any) -> str:
    return json.dumps(row, ensure_ascii=False, default=str)
