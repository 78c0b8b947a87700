"""Call a command with --data and with --service, and compare what it prints."""

from __future__ import annotations

import pytest

from jobs.cli.main import main
from jobs.edge.process.job_directory import JobDirectory
from schemas.spec.file import load_spec
from tests.support.command.lab import Answer, lines
from tests.support.command.shop import Result
from tests.support.service.served import Served, eventually


class BothWays:
    """One data directory and the service over it."""

    def __init__(self, served: Served, capsys: pytest.CaptureFixture[str]) -> None:
        self.served = served
        self._capsys = capsys

    def call(self, *arguments: str) -> Answer:
        code = main(arguments)
        out, err = self._capsys.readouterr()
        return code, out, err

    def by_tables(self, *arguments: str) -> Answer:
        return self.call(*arguments, "--data", str(self.served.data))

    def by_service(self, *arguments: str) -> Answer:
        return self.call(*arguments, "--service", self.served.address)

    def same(self, *arguments: str) -> Answer:
        """Return the answer that both sources give: exit code, output, notes."""
        by_tables, by_service = self.by_tables(*arguments), self.by_service(*arguments)
        assert by_service == by_tables
        return by_tables

    def same_documents(self, *arguments: str) -> Result:
        code, out, err = self.same(*arguments, "--json")
        assert code == 0, err
        return lines(out)


def adopt(served: Served, job: str, epoch: int) -> None:
    """Put the spec of a job whose table is there, and wait until the service has read it."""
    spec = load_spec(JobDirectory(served.data, job).spec)
    with served.client() as client:
        assert client.put(f"/v1/jobs/{job}", json=spec.document()).status_code == 201
    seen(served, job, epoch)


def seen(served: Served, job: str, epoch: int) -> None:
    eventually(lambda: served.job(job)["epoch"] == epoch)


def without(documents: Result, *keys: str) -> Result:
    """Return the documents without what differs from call to call."""
    return [{k: v for k, v in each.items() if k not in keys} for each in documents]
