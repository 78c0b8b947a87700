"""Documents: answers of the service as dicts whose fields are attributes too.

    job = client.job("items")
    job.lag.records == job["lag"]["records"]

documents.pyi has the fields of each, made from the service's own types by setup/client_types.py. A
field that a newer service adds is there as well.
"""

from __future__ import annotations

import json
from typing import Any

# Fields that an answer may leave out; the attribute is None then.
_MISSING = """advice committed_at evolution groups_below_zero joined joined_complete mirror moved
pending raw raw_base64 snapshot source source_repeats sources spec views why"""
OPTIONAL = frozenset(_MISSING.split())


class Document(dict[str, Any]):
    """A JSON object; its fields are attributes too."""

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        if name in OPTIONAL:
            return None
        raise AttributeError(f"{type(self).__name__} has no field {name!r}", name=name, obj=self)


def parse_document(content: bytes) -> Any:
    """Return JSON with all of its objects as documents."""
    return json.loads(content, object_hook=Document)


# The types of whole answers; documents inside of them are of the type Document.
_ANSWERS = """AuditLogLine Change DifferingGroup Explained History Job JobOffsets Listing LogLine
    Operation PlanNode Quarantined Result Savepoint Topics Valid View Watermarks"""
for _name in _ANSWERS.split():
    globals()[_name] = type(_name, (Document,), {"__module__": __name__})
