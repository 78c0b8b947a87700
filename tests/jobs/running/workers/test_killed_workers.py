"""Workers that die of a message: it is named, and the job is exact once they live."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.edge.process.broker import Broker
from schemas.directory.documents import read_document
from schemas.directory.failure import Failure
from schemas.directory.paths import JobDirectory
from tests.support.histories.products import history
from tests.support.jobs.exact_job import must_be_exact, product_job
from tests.support.jobs.running_job import produce

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


def test_a_message_that_every_worker_dies_of_stops_the_job_by_name(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    job = product_job(broker, topic, tmp_path, query=0)
    made = history(6, messages=60)
    produce(broker.address, topic, [(m.partition, m.value) for m in made.messages])
    code, output = job.run("decode_task=kill")
    assert code == 1 and job.fired("decode_task"), output
    failure = read_document(JobDirectory(job.data, "items").failure, Failure)
    assert failure is not None and (failure.code, failure.retryable) == ("input-refused", False)
    named = f"3 attempts failed at one message, topic {topic}, partition 0, offset 0, "
    assert failure.reason.startswith(named) and "retally offsets" in failure.reason
    assert named in output.splitlines()[-1]

    job.must_run_by_itself()  # with workers that live
    must_be_exact(job, made, query=0)
