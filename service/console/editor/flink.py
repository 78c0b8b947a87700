"""Specs from a file of Flink SQL, as `retally from-flink` writes them."""

from __future__ import annotations

from pathlib import PurePath
from typing import NamedTuple

from jobs.migrating.conversion import convert


class FlinkSpecs(NamedTuple):
    """The spec of each job, and what is not supported or differs, a line each."""

    specs: dict[str, str]
    notes: list[str]


def convert_flink_sql(sql: bytes) -> FlinkSpecs:
    """Return the specs of a file, without its connections: the service has its own."""
    try:
        found = convert(sql.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        return FlinkSpecs({}, [f"the file is not UTF-8 at byte {error.start}"])
    specs = {PurePath(draft.file_name).stem: draft.text() for draft in found.drafts}
    return FlinkSpecs(specs, [line.removeprefix(":") for line in found.describe("")])
