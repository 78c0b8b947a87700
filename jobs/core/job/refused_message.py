"""Replaying: whether a job would take a message of its quarantine now, as it is or fixed; and
which groups lack it until then."""

from __future__ import annotations

import re

from jobs.core.formats.registry import MessageRules
from jobs.core.plan.tree import Column, Plan
from jobs.core.values.change import Changes, ColumnGone, Filtered, Rejected
from jobs.core.values.json_values import Json, render
from schemas.spec.job import JobSpec

# EPOCH-TOPIC-PARTITION-OFFSET: what a message in quarantine is called.
IDENTITY = re.compile(r"(\d{1,15})-([A-Za-z0-9._-]{1,249})-(\d{1,9})-(\d{1,18})", re.ASCII)
Place = tuple[int, str, int, int]  # epoch, topic, partition, offset


def place_of(identity: str) -> Place | None:
    """The place that an id names; None for what is no id."""
    found = IDENTITY.fullmatch(identity)
    if found is None:
        return None
    epoch, topic, partition, offset = found.groups()
    return int(epoch), topic, int(partition), int(offset)


def identity_of(place: Place) -> str:
    return "-".join(str(part) for part in place)


def why_refused(spec: JobSpec, plan: Plan, value: bytes) -> tuple[str, str] | None:
    """The reason and the path for which the job would not take a message; None where it would.

    Expressions are not looked at: a row on which one fails is in quarantine again.
    """
    decoded = MessageRules.of(spec).decoder(plan.columns, plan.used).explain(value)
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
    """Return the groups that the rows of a message belong to, those before an update too.

    A group is named by its columns of the source; what an expression makes of them is left out.
    None if these columns cannot be read.
    """
    named = [(each.name, each.expression) for each in plan.group]
    columns = [(name, found) for name, found in named if isinstance(found, Column)]
    used = tuple(dict.fromkeys(column for _, column in columns))
    decoded = MessageRules.of(spec).decoder(used, used).explain(value)
    if not isinstance(decoded, Changes):
        return None
    places = {column: place for place, column in enumerate(used)}
    groups = [
        {name: render(row[places[column]], column.type) for name, column in columns}
        for _, row in decoded.changes
    ]
    return [group for place, group in enumerate(groups) if group not in groups[:place]]
