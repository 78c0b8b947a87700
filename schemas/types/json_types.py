"""The type of a JSON object whose keys are not ours.

A spec as its user wrote it, a row with the columns of a job, the result of a command, OpenAPI. A
document of ours is a struct.
"""

from __future__ import annotations

from typing import Any

JsonObject = dict[str, Any]
