"""Quarantined messages: ids, JSON, the reason of the refusal, and the affected groups."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any

from jobs.core.formats.registry import MessageDecoder, MessageRules
from jobs.core.job.views import plans_of, reading_plan
from jobs.core.plan.tree import Column, Plan
from jobs.core.values.change import Changes, ColumnGone, Decoded, Filtered, Rejected, Truncated
from jobs.core.values.json_values import Json, render
from schemas.spec.job import JobSpec

# EPOCH-TOPIC-PARTITION-OFFSET: the id of a message in quarantine.
IDENTITY = re.compile(r"(\d{1,15})-([A-Za-z0-9._-]{1,249})-(\d{1,9})-(\d{1,18})", re.ASCII)
MessagePosition = tuple[int, str, int, int]  # epoch, topic, partition, offset


def parse_message_id(identity: str) -> MessagePosition | None:
    """Return the position of a message from its id; None if the text is not an id."""
    match = IDENTITY.fullmatch(identity)
    if match is None:
        return None
    epoch, topic, partition, offset = match.groups()
    return int(epoch), topic, int(partition), int(offset)


def identity_of(position: MessagePosition) -> str:
    """Return the id of a message from its position."""
    return "-".join(str(part) for part in position)


def position_in(row: Mapping[str, Any]) -> MessagePosition:
    """Return the position of the message in a row of the quarantine."""
    return row["epoch"], row["topic"], row["partition"], row["offset"]


def message_document(row: Mapping[str, Any], bytes_max: int | None = None) -> dict[str, Any]:
    """Return a row of the quarantine as JSON, with at most `bytes_max` of its bytes."""
    raw: bytes | None = row["raw"]
    shown = None if raw is None else raw[:bytes_max]
    document = {
        "id": identity_of(position_in(row)),
        **{name: row[name] for name in ("epoch", "topic", "partition", "offset")},
        "time": None if row["time"] is None else int(row["time"].timestamp() * 1_000),
        "reason": row["reason"],
        "path": row["path"],
        "bytes": row["raw_bytes"],
        "cut": shown is not None and len(shown) < row["raw_bytes"],
    }
    if shown is None:
        return document | {"raw": None}
    try:
        return document | {"raw": shown.decode()}
    except UnicodeDecodeError as error:
        if raw != shown and error.start >= len(shown) - 3:  # a character cut in two
            return document | {"raw": shown[: error.start].decode()}
        return document | {"raw_base64": b64encode(shown).decode()}


def job_decoders(spec: JobSpec, topic: str) -> list[MessageDecoder]:
    """Return the decoders of a topic, of each source that reads it; `spec` is of the whole job.

    All views share the decoded rows, so a message must fit the columns of each view.
    """
    if spec.sources is None:
        plan = reading_plan(plans_of(spec))
        return [MessageRules.of(spec).decoder(plan.columns, plan.used)]
    found = []
    for name in spec.sources_of(topic):
        alone = spec.source_specs[name]
        columns = tuple(Column(each, kind) for each, kind in alone.columns.items())
        found.append(MessageRules.of(alone).decoder(columns, columns))
    return found


def why_refused(decoders: Sequence[MessageDecoder], value: bytes) -> tuple[str, str] | None:
    """Return the reason and the path for which the job refuses a message; None if it accepts it.

    Expressions are not evaluated: a row on which one fails goes into quarantine again.
    """
    found = [decoder.explain(value) for decoder in decoders]
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
    decoded = MessageRules.of(spec).decoder(used, used).explain(value)
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
