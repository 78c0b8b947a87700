"""Rules that only a job with several publishers has, each broken on purpose."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from jobs.core.publish import shares
from jobs.core.publish.protocol import Configuration, Progress
from jobs.edge.publisher import process
from jobs.edge.publisher.share_processes import Helpers
from tests.simulation.broken_rules import BrokenRule, replaced

HandOver = Callable[[Sequence[Progress], int, int], list[Progress]]


def _without_those_ahead(hand_over: HandOver) -> HandOver:
    def handed(before: Sequence[Progress], count: int, partitions: int) -> list[Progress]:
        found = hand_over(before, count, partitions)
        return [msgspec.structs.replace(each, ahead=msgspec.UNSET) for each in found]

    return handed


def _as_share_0_is(before: Sequence[Progress], count: int, partitions: int) -> list[Progress]:
    return shares.hand_over(before[:1], count, partitions)


_of_share = Configuration.of_share


def _with_another_id_to_fence(self: Configuration, share: int, writer: str = "") -> Configuration:
    return _of_share(self, share if writer else 10 + share, writer)


BROKEN_SHARES = [
    BrokenRule(
        "share 0 covers an epoch after all helpers have published it",
        replaced(Helpers, "wait_until_published", lambda *_: None),
    ),
    BrokenRule(
        "helpers continue at their own progress", replaced(process, "hand_over", _as_share_0_is)
    ),
    BrokenRule(
        "partitions that are ahead of their new owner are remembered",
        replaced(process, "hand_over", _without_those_ahead(shares.hand_over)),
    ),
    BrokenRule(
        "partitions that are ahead are so until their epoch is over",
        replaced(process, "still_ahead", lambda *_: msgspec.UNSET),
    ),
    BrokenRule(
        "a share publishes only its own partitions",
        replaced(process, "find_floors", lambda *_: None),
    ),
    BrokenRule(
        "helpers are fenced before their progress is read",
        replaced(Configuration, "of_share", _with_another_id_to_fence),
    ),
]
