"""Trial: what a job would make of some messages, without running it.

    messages ──► the job's decoder ──► rows, or why not ──► WHERE, group, arguments ──► fold in
                                                            (jobs.core.evaluate)             memory
                                                                 changelog of one bundle ◄──┘

All of it is the core's, so the rows are those that the job would emit if it read these messages and
no others. Row expressions that only Spark evaluates are told as such.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from jobs.core.evaluate.expressions import evaluator, not_here
from jobs.core.fold.fold import ChangelogRow
from jobs.core.fold.in_memory import Bundle, Projected, Projection, Tally, plain_projection
from jobs.core.fold.laws import BrokenLaw
from jobs.core.formats.registry import KeyedDecoder, MessageRules
from jobs.core.plan.tree import Column, Expression, KeyValue, Plan
from jobs.core.plan.walk import replaced
from jobs.core.values.change import Changes, ColumnGone, Decoded, Filtered, Rejected, Row
from jobs.core.values.json_values import renderer
from jobs.core.values.rounding import Failed
from schemas.spec.job import JobSpec
from service.answers.samples import Sample
from service.table.row_shape import RowShape

_RAW_CHARACTERS = 2_000
_ROWS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class TriedMessage:
    sample: Sample
    raw: str  # cut, where it is long
    outcome: str  # rows, refused, skipped, filtered
    reason: str | None
    rows: tuple[tuple[str, str], ...]  # a sign, and the row as JSON

    @property
    def tone(self) -> str:
        return {"rows": "good", "refused": "bad"}.get(self.outcome, "quiet")


@dataclass(frozen=True, slots=True)
class Trial:
    messages: tuple[TriedMessage, ...]
    changelog: tuple[tuple[str, str], ...]  # op, and the row as JSON
    untold: str | None  # why there is no changelog


def tried(spec: JobSpec, plan: Plan, samples: Sequence[Sample]) -> Trial:
    """Every message by itself, and all of them as one bundle."""
    decoder = MessageRules.of(spec).decoder(plan.columns, plan.image)
    shown = [(column.name, renderer(column.type)) for column in plan.image]
    decoded = [(each, _decoded(decoder, each)) for each in samples]
    messages = tuple(_message(each, found, shown) for each, found in decoded)
    try:
        changelog = _changelog(plan, decoded)
    except _Untold as why:
        return Trial(messages, (), str(why))
    shape = RowShape(plan)
    rows = tuple((str(op), _json(shape.row(key, row))) for op, key, row in changelog)
    return Trial(messages, rows[:_ROWS_SHOWN], None)


class _Untold(Exception):
    """What the rows become cannot be said here; the message says why."""


def _decoded(decoder: Any, sample: Sample) -> Decoded:
    if isinstance(decoder, KeyedDecoder):
        return decoder.explain_keyed(sample.value, sample.key)
    found: Decoded = decoder.explain(sample.value)
    return found


def _message(
    sample: Sample, found: Decoded, shown: Sequence[tuple[str, Callable[[Any], Any]]]
) -> TriedMessage:
    raw = (sample.value or b"")[: 4 * _RAW_CHARACTERS].decode("utf-8", "replace")
    outcome, reason, rows = "skipped", None, []
    if isinstance(found, Changes):
        outcome = "rows"
        for sign, row in found.changes[:_ROWS_SHOWN]:
            named = {name: render(value) for (name, render), value in zip(shown, row, strict=True)}
            rows.append(("+" if sign > 0 else "-", _json(named)))
    elif isinstance(found, Rejected):
        outcome, reason = "refused", f"{found.reason} ({found.path})"
    elif isinstance(found, ColumnGone):
        outcome, reason = "refused", f"column {found.column!r}: {found.why}"
    elif isinstance(found, Filtered):
        outcome, reason = "filtered", "of a database or table that the spec does not read"
    else:
        reason = found.why
    return TriedMessage(sample, raw[:_RAW_CHARACTERS], outcome, reason, tuple(rows))


def _changelog(plan: Plan, decoded: Sequence[tuple[Sample, Decoded]]) -> list[ChangelogRow]:
    if plan.window is not None or plan.grouping_sets > 1 or plan.primary_key:
        what = "windows" if plan.window is not None else "grouping sets"
        what = "the last images of rows" if plan.primary_key else what
        raise _Untold(f"What {what} make of them shows once the job runs.")
    bundle = Bundle()
    numbers: dict[tuple[str, int], int] = {}
    for sample, found in decoded:
        if isinstance(found, Changes):
            place = numbers.setdefault((sample.topic, sample.partition), len(numbers))
            bundle.add(place, sample.offset, found.changes)
    if not bundle.rows:
        raise _Untold("None of these messages has rows for this job.")
    try:
        return Tally(plan, _projection(plan)).fold(bundle.ranges()).changelog
    except Failed as failed:
        raise _Untold(f"An expression fails on one of the rows: {failed}") from None
    except BrokenLaw:  # the beginning of their history is missing
        raise _Untold("These messages change rows that came before them.") from None


def _projection(plan: Plan) -> Projection:
    plain = plain_projection(plan)
    if plain is not None:
        return plain
    places = {column.name: place for place, column in enumerate(plan.used)}

    def over(expression: Expression) -> Callable[[Row], Any]:
        def value(part: Expression) -> Expression | None:
            return KeyValue(places[part.name], part.type) if isinstance(part, Column) else None

        made = replaced(expression, value)
        why = not_here(made)
        if why is not None:
            what = why.name or "a part of the query"
            raise _Untold(f"What becomes of the rows shows once the job runs: it takes {what}.")
        return evaluator(made, 0)

    where = None if plan.where is None else over(plan.where)
    group = [over(named.expression) for named in plan.group]
    arguments = [over(named.expression) for named in plan.arguments]

    def projection(row: Row) -> Projected | None:
        if where is not None and where(row) is not True:
            return None
        return tuple(each(row) for each in group), tuple(each(row) for each in arguments)

    return projection


def _json(row: Any) -> str:
    return json.dumps(row, ensure_ascii=False, default=str)
