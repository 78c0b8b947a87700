"""What a start refuses before it reads anything."""

from __future__ import annotations

import pytest

from jobs.running.failure import SpecMisfit
from jobs.running.job_table import require_own_topics
from schemas.spec.file import load_spec
from schemas.spec.job import JobSpec


def spec(**topics: str) -> JobSpec:
    query = "SELECT k, COUNT(*) AS n FROM t GROUP BY k"
    return load_spec(
        {
            "name": "items",
            "source": {"topic": "t"},
            "columns": {"k": "STRING"},
            "views": {
                view: {"query": query, "sink": {"topic": topic}} for view, topic in topics.items()
            },
        }
    )


def test_a_view_does_not_continue_in_the_topic_of_another_one() -> None:
    before = spec(low="one", top="two")
    for same in (before, spec(top="two", low="one"), spec(low="three", top="two")):
        require_own_topics(same, before)
    require_own_topics(before, None)
    with pytest.raises(SpecMisfit, match="topic two has the changelog of view"):
        require_own_topics(spec(low="two", top="one"), before)
