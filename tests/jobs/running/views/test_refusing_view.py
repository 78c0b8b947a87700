"""A message that one view refuses is in its quarantine only, and each command says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobs.edge.process.broker import Broker
from tests.support.jobs.canal_messages import insert, row
from tests.support.jobs.running_job import RunningJob, create_topic, produce

pytestmark = [pytest.mark.spark, pytest.mark.broker]

VIEWS = {
    "sums": "SELECT k, SUM(CAST(v AS INT)) AS s FROM t GROUP BY k",
    "tops": "SELECT k, MAX(v) AS top FROM t GROUP BY k",
    "whole": "SELECT COUNT(*) AS n FROM t",
}


@pytest.mark.slow
def test_what_one_view_refuses_is_named_by_the_run_and_in_no_other_quarantine(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    create_topic(broker.address, topic, 1)
    spec: dict[str, Any] = {"name": "items", "source": {"topic": topic}, "max_bad_fraction": 1.0}
    spec["columns"] = {"k": "STRING", "v": "STRING"}
    spec["views"] = {
        view: {"query": query, "state": {"buckets": 4}} for view, query in VIEWS.items()
    }
    job = RunningJob(spec, tmp_path, broker.address)
    messages = [insert(row("a", "1")), insert(row("a", "x")), b"no", insert(row("b", "2"))]
    produce(broker.address, topic, [(0, message) for message in messages])
    code, output = job.run()
    assert code == 0, output
    assert "4 messages (1 of them in quarantine, 1 refused by view sums)" in output
    command = f"retally quarantine items --data {job.data} --view sums"
    assert f"1 of them is in quarantine: {command}" in output
    assert f"view sums refused 1 of them: {command}" in output

    refused = {view: job.ask("quarantine", "items", "--view", view) for view in VIEWS}
    assert {view: len(found) for view, found in refused.items()} == {
        "sums": 2,
        "tops": 1,
        "whole": 1,
    }
    reasons = [each["reason"] for each in refused["sums"]]
    assert any("view sums: CAST(v AS INT): 'x' is no INT" in reason for reason in reasons)
    assert job.ask("results", "items.whole") == [{"n": 3}]
    assert job.ask("results", "items", "--view", "tops")[0] == {"k": "a", "top": "x"}
    assert job.ask("results", "items.sums")[0] == {"k": "a", "s": 1}
    for words in (("results",), ("quarantine",), ("explain", "a"), ("changes",)):
        verb, *others = words
        ran = job._ran(verb, "items", *others, "--data", str(job.data))
        assert ran.returncode == 1
        assert ran.stderr.strip() == (
            "retally: job 'items' has no query of its own; name one of its views with --view: "
            "sums, tops, whole"
        )
    explained = job._ran("explain", "items", "a", "--view", "tops", "--data", str(job.data))
    assert explained.stdout.startswith('items.tops {"k": "a"} at epoch 1')
