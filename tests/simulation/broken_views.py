"""Rules that only a job with several views has, each broken on purpose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from jobs.core.publish.protocol import EpochToPublish, Progress
from jobs.edge.publisher.job_publisher import JobPublisher
from jobs.edge.table.file_writer import AddedFile
from jobs.running.outcome import Outcome
from jobs.running.views import RunningView
from tests.simulation.broken_rules import BrokenRule, points, replaced


def _without_the_last_view(
    list_files: Callable[[RunningView, Outcome], list[AddedFile]],
) -> Callable[[RunningView, Outcome], list[AddedFile]]:
    return lambda self, outcome: list_files(self, outcome) if self.number < 2 else []


def _only_the_first_topic(
    build: Callable[..., EpochToPublish],
) -> Callable[..., EpochToPublish]:
    def build_message(self: JobPublisher, *arguments: Any) -> EpochToPublish:
        message = build(self, *arguments)
        return msgspec.structs.replace(message, others=[[] for _ in message.others])

    return build_message


def _the_same_in_every_topic(self: Progress, epoch: int, sink: int = 0) -> int | None:
    inside = self.epoch == epoch and not self.complete
    return self.seq if inside and self.seq is not None else -1


BROKEN_VIEWS = [
    BrokenRule(
        "one commit has the files of every view",
        replaced(RunningView, "list_files", _without_the_last_view(RunningView.list_files)),
    ),
    BrokenRule(
        "each topic gets the changelog of its view",
        replaced(
            JobPublisher, "_build_message", _only_the_first_topic(JobPublisher._build_message)
        ),
    ),
    BrokenRule(
        "the progress says in which topic an epoch has stopped",
        replaced(Progress, "seq_reached", _the_same_in_every_topic),
    ),
    BrokenRule(
        "the rows that were sent for a view arrive",
        replaced(Outcome, "count_filtered", lambda *_: 0),
        points("arrived"),
    ),
]
