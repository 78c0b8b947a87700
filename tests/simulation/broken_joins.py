"""Rules that only a job with joins has, each broken on purpose."""

from __future__ import annotations

from jobs.edge.table.file_writer import AddedFile
from jobs.running.outcome import Outcome
from tests.simulation.broken_rules import BrokenRule, points, replaced


def _only_quarantine(outcome: Outcome) -> list[AddedFile]:
    return [file for report in outcome.ranges for file in report.quarantine]


BROKEN_JOINS = [
    BrokenRule(
        "one commit has the files of every side",
        replaced(Outcome, "shared_files", property(_only_quarantine)),
    ),
    BrokenRule(
        "the rows that were sent to a side arrive",
        replaced(Outcome, "check_side", lambda *_: None),
        points("arrived"),
    ),
]
