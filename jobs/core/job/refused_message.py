"""Quarantined messages: the reason of the refusal, and the affected groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from jobs.core.formats.registered import FindSchema
from jobs.core.formats.registry import MessageDecoder, MessageRules
from jobs.core.job.views import JobInputs, plans_of
from jobs.core.plan.tree import Column, Plan
from jobs.core.values.change import Changes, ColumnGone, Decoded, Filtered, Rejected, Truncated
from jobs.core.values.json_values import Json, render
from schemas.spec.job import JobSpec

# Returns how a source with a schema registry finds the schemas of its messages.
Finders = Callable[[JobSpec], FindSchema | None]


def job_decoders(spec: JobSpec, topic: str, find: Finders) -> dict[str, MessageDecoder]:
    """Return the decoder of each source that reads a topic; `spec` is of the whole job.

    All views share the decoded rows, so a message must fit the columns of each view.
    """
    specs = spec.source_specs
    return {
        name: MessageRules.of(specs[name]).decoder(
            plan.columns, plan.used, find_schema=find(specs[name])
        )
        for name, plan in JobInputs.of(spec, plans_of(spec)).sources.items()
        if spec.sources is None or topic in specs[name].source.topics
    }


def find_taker(
    spec: JobSpec, topic: str, refusing: str | None, value: bytes, find: Finders
) -> str | None:
    """Return a source that counted a message which another source of its topic has refused.

    A source with dedupe counts a message that is sent again once."""
    decoders = {} if refusing is None else job_decoders(spec, topic, find)
    for name, decoder in decoders.items():
        counts_again = name != refusing and spec.source_specs[name].dedupe is None
        if counts_again and isinstance(decoder.explain(value), Changes):
            return name
    return None


def why_refused(decoders: Mapping[str, MessageDecoder], value: bytes) -> tuple[str, str] | None:
    """Return the reason and the path for which the job refuses a message; None if it accepts it.

    Expressions are not evaluated: a row on which one fails goes into quarantine again.
    """
    found = [decoder.explain(value) for decoder in decoders.values()]
    of_concern = [each for each in found if not isinstance(each, Filtered)]
    return next(filter(None, map(_explain, of_concern or found[:1])), None)


def _explain(decoded: Decoded) -> tuple[str, str] | None:
    if isinstance(decoded, Truncated):
        decoded = decoded.rejected
    if isinstance(decoded, Changes):
        return None if decoded.changes else ("the message has no rows", "$")
    if isinstance(decoded, Rejected):
        return decoded.reason, decoded.path
    if isinstance(decoded, ColumnGone):
        return f"column {decoded.column!r}: {decoded.why}", "$"
    if isinstance(decoded, Filtered):
        return "the job does not read that database or table", "$"
    return f"the message carries no rows: {decoded.why}", "$"


def groups_of(spec: JobSpec, plan: Plan, value: bytes) -> list[dict[str, Json]] | None:
    """Return the groups of a message's rows, also of the rows before an update.

    Only group columns that are source columns are returned, without expressions. None if these
    columns cannot be read.
    """
    named = [(each.name, each.expression) for each in plan.group]
    if plan.relation is not None:  # the group is of joined rows
        return None
    columns = [(name, column) for name, column in named if isinstance(column, Column)]
    used = tuple(dict.fromkeys(column for _, column in columns))
    rules = MessageRules.of(spec.source_specs[plan.source])
    decoded = rules.decoder(used, used).explain(value)
    if not isinstance(decoded, Changes):
        return None
    indexes = {column: index for index, column in enumerate(used)}
    keys = dict.fromkeys(
        tuple(row[indexes[column]] for _, column in columns) for _, row in decoded.changes
    )
    return [
        {
            name: render(value, column.type)
            for (name, column), value in zip(columns, key, strict=True)
        }
        for key in keys
    ]
