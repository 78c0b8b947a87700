"""Trial run: the changelog that a job would emit for some messages, without starting it.

    messages ──► the job's decoder ──► rows, or a reason ──► WHERE, group, arguments ──► fold in
                                                             (jobs.core.rows.projection)      memory
                                                                 changelog of one bundle ◄──┘

The trial uses the same core as the job, so its rows equal those that the job would emit if it read
only these messages.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jobs.core.fold.fold import ChangelogRow
from jobs.core.fold.laws import BrokenLaw
from jobs.core.formats.registry import MessageDecoder, MessageRules
from jobs.core.job.in_memory import Event, InMemoryJob, RowExpander, list_evaluated_rows
from jobs.core.job.views import JobInputs
from jobs.core.job.window_rules import closing_of
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
from jobs.table.row_shape import RowShape
from jobs.topics.samples import Sample
from schemas.limits import SAMPLE_BYTES_MAX
from schemas.spec.job import JobSpec
from schemas.table.epoch import TopicPartition

_RAW_CHARACTERS = 2_000
_ROWS_SHOWN = 20
_ROWS_IN_LINE = 2
_NOT_JOINED = "A trial run does not join its few messages; start the job to see results."


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


def run_trial(spec: JobSpec, plan: Plan, samples: Sequence[Sample]) -> Trial:
    """Decode each message, and fold all of them as one bundle."""
    if plan.relation is not None:
        return _decode_sources(spec, plan, samples)
    spec = spec.source_specs[plan.source]
    plan = replace(plan, source="")
    samples = [each for each in samples if each.topic in spec.source.topics]
    decoder = MessageRules.of(spec).decoder(plan.columns, plan.image)
    renderers = [(column.name, renderer(column.type)) for column in plan.image]
    decoded = [(each, _decode(decoder, each)) for each in samples]
    messages = tuple(_describe(each, found, spec, renderers) for each, found in decoded)
    try:
        changelog = _fold(spec, plan, decoded)
    except _NoChangelog as reason:
        return Trial(messages, (), str(reason))
    shape = RowShape(plan, safe=True)
    rows = tuple((str(op), _json(shape.row(key, row))) for op, key, row in changelog)
    hidden = None
    if plan.having is not None:
        without = _fold(spec, replace(plan, having=None), decoded)
        count = len(_live_groups(without)) - len(_live_groups(changelog))
        groups = "1 group" if count == 1 else f"{count} groups"
        hidden = f"HAVING {expression_sql(plan.having, plan)} hides {groups}."
    return Trial(messages, rows[:_ROWS_SHOWN], None, hidden)


def _decode_sources(spec: JobSpec, plan: Plan, samples: Sequence[Sample]) -> Trial:
    """Decode each message as the sources of its topic; what they join is not computed."""
    messages: list[TriedMessage] = []
    specs = spec.source_specs
    for sample in samples:
        found = []
        for name, reads in JobInputs.of(spec, {"": plan}).sources.items():
            if sample.topic not in specs[name].source.topics:
                continue
            rules = MessageRules.of(specs[name])
            decoded = _decode(rules.decoder(reads.columns, reads.image), sample)
            renderers = [(column.name, renderer(column.type)) for column in reads.image]
            tried = _describe(sample, decoded, specs[name], renderers)
            found.append(replace(tried, source=name))
        taken = [each for each in found if each.outcome != "filtered"]
        messages += taken or found[:1]
    return Trial(tuple(messages), (), _NOT_JOINED)


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
    return decoder.explain(sample.value, sample.key)


def _describe(
    sample: Sample,
    found: Decoded,
    spec: JobSpec,
    renderers: Sequence[tuple[str, Callable[[Any], Any]]],
) -> TriedMessage:
    if isinstance(found, Truncated):
        return _describe_truncate(sample, found, spec)
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
    else:
        reason = found.why
    return TriedMessage(sample, _show_raw(sample), outcome, reason, tuple(rows))


def _describe_truncate(sample: Sample, found: Truncated, spec: JobSpec) -> TriedMessage:
    if spec.on_truncate == "apply" and found.es is not None:
        reason = f"{found.statement}: the rows from before it are retracted"
        return TriedMessage(sample, _show_raw(sample), "rows", reason, ())
    reason = f"{found.statement}: {found.rejected.reason}"
    return TriedMessage(sample, _show_raw(sample), "rejected", reason, ())


def _show_raw(sample: Sample) -> str:
    """Return the beginning of the message as text."""
    raw = (sample.value or b"")[: 4 * _RAW_CHARACTERS].decode("utf-8", "replace")
    return raw[:_RAW_CHARACTERS]


def _fold(
    spec: JobSpec, plan: Plan, decoded: Sequence[tuple[Sample, Decoded]]
) -> list[ChangelogRow]:
    if not any(isinstance(found, Changes) and found.changes for _, found in decoded):
        raise _NoChangelog("None of these messages has rows for this job.")
    if closing_of(spec, plan) is not None:  # nothing is emitted before the watermark
        raise _NoChangelog("A trial run does not close windows; start the job to see results.")
    rows = RowExpander(plan)
    job = InMemoryJob(spec, plan, rows)
    events: list[Event] = []
    applies = spec.on_truncate == "apply"
    try:
        for sample, found in reversed(decoded):  # as a job reads them: oldest first
            at = TopicPartition(sample.topic, sample.partition), sample.offset
            if isinstance(found, Changes):
                for row in list_evaluated_rows(plan, found.changes):
                    if (reason := rows.failure(row)) is not None:
                        raise _NoChangelog(f"An expression fails on one of the rows: {reason}")
                events += job.take(*at, found.changes, found.es)
            elif applies and isinstance(found, Truncated) and found.es is not None:
                events += job.truncate(*at, found.es, found.ts)
        events += job.end_bundle()
    except BrokenLaw:  # the inserts of these rows are missing
        raise _NoChangelog("These messages change rows of earlier messages.") from None
    return [event for event in events if isinstance(event, tuple)]


def _values(row: str) -> list[str]:
    return [
        f"{name}={'NULL' if value is None else value}" for name, value in json.loads(row).items()
    ]


def _json(row: Any) -> str:
    return json.dumps(row, ensure_ascii=False, default=str)
