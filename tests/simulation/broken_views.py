"""Rules that only a job with several views has, each broken on purpose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from jobs.core.publish.protocol import EpochToPublish, Progress
from jobs.edge.publisher.job_publisher import JobPublisher
from jobs.edge.publisher.process import PublisherProcess
from jobs.edge.table.file_writer import AddedFile
from jobs.running.outcome import Outcome
from jobs.running.views import RunningView
from tests.simulation.broken_rules import BrokenRule, points, replaced


def _without_the_last_view(
    list_files: Callable[[RunningView, Outcome], list[AddedFile]],
) -> Callable[[RunningView, Outcome], list[AddedFile]]:
    return lambda self, outcome: list_files(self, outcome) if self.number < 2 else []


def _only_the_first_topic(build: Callable[..., EpochToPublish]) -> Callable[..., EpochToPublish]:
    def build_message(self: JobPublisher, *arguments: Any) -> EpochToPublish:
        message = build(self, *arguments)
        first, *others = message.files
        return msgspec.structs.replace(message, files=[first, *([] for _ in others)])

    return build_message


def _of_the_first_topic(
    commit: Callable[[PublisherProcess, list[Progress]], None],
) -> Callable[[PublisherProcess, list[Progress]], None]:
    return lambda self, progress: commit(self, [progress[0]] * len(progress))


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
        "each topic has its own progress",
        replaced(PublisherProcess, "_commit", _of_the_first_topic(PublisherProcess._commit)),
    ),
    BrokenRule(
        "the rows that were sent for a view arrive",
        replaced(Outcome, "count_filtered", lambda *_: 0),
        points("arrived"),
    ),
]
