"""The plan shows the decoding path of a job, and the tasks take that path."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.core.formats.registry import MessageRules
from jobs.core.job.job_plan import plan_of
from jobs.core.job.plan_nodes import describe_decoding_path
from jobs.core.plan.tree import Column
from schemas.spec.job import JobSpec
from schemas.types.sql_types import SqlType

SPEC: dict[str, Any] = {
    "name": "items",
    "source": {"topic": "items"},
    "columns": {"name": "STRING", "cnt": "INT", "at": "TIMESTAMP(3)"},
    "query": "SELECT name, COUNT(*) AS n FROM items GROUP BY name",
}
ONE_BY_ONE = {
    "the format is changelog-json": {"source": {"topic": "items", "format": "changelog-json"}},
    "column noon is TIME": {
        "source": {"topic": "items", "format": "debezium-json"},
        "columns": SPEC["columns"] | {"noon": "TIME"},
    },
    "the watermark follows the rows in their order": {
        "watermark": {"generator": "punctuated", "marker": "cnt = 0"}
    },
}


def decoding_of(changes: dict[str, Any]) -> str:
    spec = JobSpec.model_validate(SPEC | changes)
    return describe_decoding_path(spec, plan_of(spec).columns)


@pytest.mark.parametrize("source_format", ["canal-json", "maxwell-json", "debezium-json"])
def test_a_usual_job_scans_its_messages(source_format: str) -> None:
    source = {"topic": "items", "format": source_format}
    assert decoding_of({"source": source}) == "scanned, many messages at once"


@pytest.mark.parametrize(("why", "changes"), ONE_BY_ONE.items(), ids=ONE_BY_ONE)
def test_other_jobs_decode_message_by_message(why: str, changes: dict[str, Any]) -> None:
    assert decoding_of(changes) == f"message by message, because {why}"


def test_a_decoder_without_a_scanner_for_its_columns_has_none() -> None:
    spec = JobSpec.model_validate(SPEC)
    declared = plan_of(spec).columns

    more = Column('a"b', SqlType.parse("INT"))
    assert MessageRules("canal-json").decoder(declared, declared).make_scanner() is not None
    assert MessageRules("canal-json").decoder((*declared, more), declared).make_scanner() is None
