"""Whether a job has what its database answers to the same queries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cdc.database import SCHEMA
from tests.cdc.source import Source
from tests.cdc.workload import COLUMNS, Query, queries
from tests.support.database_rows import differences
from tests.support.faults.tally import FaultTally
from tests.support.jobs.running_job import RunningJob

# Within a second the workload gives a row the same values or keys again.
LOOKS_LIKE_A_REPEAT = {"ambiguous_keys", "repeated_messages"}


@dataclass(slots=True)
class CheckedJob:
    """A job, and the queries of its views by their names; the first is the job's own."""

    source: Source
    run: RunningJob
    views: Mapping[str, Query]

    def check(self, tally: FaultTally) -> None:
        """Close the tally of a job that has caught up.

        Fail for every group that is lost or wrong, for every message that was refused, and if the
        audit has another reason for a doubt than changes that look like repeats.
        """
        problems = self.compare(tally)
        tally.further["quarantined"] = len(self.run.ask("quarantine", self.run.spec["name"]))
        audit = self.audit()
        tally.further["audit"] = audit["verdict"]
        print("", *problems[:20], sep="\n")
        tally.close()
        bad = {what: tally.further[what] for what in ("wrong", "quarantined")}
        assert not any(bad.values()), (bad, problems[:20])
        reports = audit.get("views", {"": audit}).values()
        doubts = {name for report in reports for name in report["odd"]}
        assert (audit["verdict"] == "equal") == (not doubts), audit
        assert doubts <= LOOKS_LIKE_A_REPEAT, audit

    def compare(self, tally: FaultTally) -> list[str]:
        """Compare each query with the database's answer; count and return the differences."""
        problems: list[str] = []
        for number, (view, query) in enumerate(self.views.items()):
            further = ("--view", view) if number else ()
            found = self.run.ask("results", self.run.spec["name"], *further)
            truth = self.source.database.rows(query.truth or query.text)
            lost, wrong = differences(found, truth, query.keys)
            tally.outputs += len(found)
            tally.lost += len(lost)
            tally.further["wrong"] += len(wrong)
            problems += [f"{view}: {each}" for each in lost + wrong]
        return problems

    def audit(self) -> dict[str, Any]:
        """Return what `retally audit` says of the job, which has not seen the database."""
        at = ("--brokers", self.run.brokers)
        (report,) = self.run.ask("audit", self.run.spec["name"], *at, code=None)
        return report


def load_job(source: Source, table: str, home: Path, **sections: Any) -> CheckedJob:
    """Return a job over a table of the workload; with dedupe it has the first view only."""
    views = queries(table)
    if "dedupe" in sections:
        views = {"customer": views["customer"]}
    return job_of(source, [table], home, views, columns=COLUMNS, **sections)


def job_of(
    source: Source, tables: list[str], home: Path, views: Mapping[str, Query], **sections: Any
) -> CheckedJob:
    first, *further = views
    name = f"{tables[0].replace('_', '-')}{'-pk' * ('dedupe' in sections)}"
    topics = [source.topic(table) for table in tables]
    spec = {
        "name": name,
        "source": {
            "topics": topics,
            "database": SCHEMA,
            "table": "|".join(tables),
            "format": source.format,
        },
        "query": views[first].text,
        "minibatch": {"size": 500, "max_rows": 1_500},
        "state": {"buckets": 4},
        **sections,
    }
    if further:
        spec["views"] = {view: {"query": views[view].text} for view in further}
    return CheckedJob(source, RunningJob(spec, home / name, source.brokers), views)
