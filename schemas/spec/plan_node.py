"""A node of a job's plan, as `retally plan` and the service show it."""

from __future__ import annotations

import msgspec

from schemas.types.json_types import JsonObject


class PlanNode(msgspec.Struct, frozen=True):
    """One operator. An attribute is None if the job does not use it."""

    id: str
    type: str
    predecessors: list[str]
    attributes: JsonObject
