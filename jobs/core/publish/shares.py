"""Divide the partitions of a topic among several publishers, and hand them over.

    partition p ──► share p % N      0: the job's publisher, 1..N-1: its helpers
    share 0     ──► <topic>-progress  its progress; it covers an epoch only after all shares do
    share k     ──► <topic>-shares    its progress in partition k, in its own transactions

A helper may be ahead of share 0: after a crash it has published what share 0 has not. So every
share continues at its own progress. If N changes, partitions get other owners; a partition that is
ahead of its new owner's progress is in `Progress.ahead`, until that progress has passed it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from jobs.core.publish.protocol import NOTHING, Position, Progress
from schemas.table.changelog import progress_topic, shares_topic

EVERYTHING = 2**63 - 1  # a floor that no seq is above


def place_progress(job: str, topic: str, share: int) -> tuple[str, str]:
    """Return the topic and the key of a share's progress, which is in the partition `share`.

    In one partition, an open transaction of a share would hide newer progress of the others.
    """
    return (shares_topic(topic), f"{job}/{share}") if share else (progress_topic(topic), job)


def find_positions(shares: Sequence[Progress], partitions: int) -> list[Position]:
    """Return the position of each partition, of which `shares` are the owners."""
    positions = []
    for partition in range(partitions):
        owner = shares[partition % len(shares)]
        ahead = owner.ahead or {}
        positions.append(max(owner.position, ahead.get(partition, NOTHING)))
    return positions


def hand_over(shares: Sequence[Progress], count: int, partitions: int) -> list[Progress]:
    """Return the progress of each of `count` new shares; no partition moves.

    Share 0 keeps partition 0, which no other partition is an epoch behind. So its progress still
    covers only epochs that all partitions have.
    """
    positions = find_positions(shares, partitions)
    handed = []
    for share in range(count):
        reached = min(positions[share::count])
        ahead = {
            partition: positions[partition]
            for partition in range(share, partitions, count)
            if positions[partition][:2] > reached[:2]
        }
        handed.append(
            msgspec.structs.replace(
                shares[0].move_to(reached),
                publishers=count if count > 1 else msgspec.UNSET,
                ahead=ahead or msgspec.UNSET,
            )
        )
    return handed


def forget_share_positions(progress: Progress) -> Progress:
    """Return the progress from which every share may start, if positions of helpers are unknown."""
    epoch, _, uuid = progress.position
    return msgspec.structs.replace(progress.move_to((epoch, -1, uuid)), ahead=msgspec.UNSET)


def find_floors(
    progress: Progress, epoch: int, share: int, count: int, partitions: int
) -> list[int] | None:
    """Return per partition the seq above which a share publishes; None if it publishes all rows.

    Its own progress inside the epoch is no part of it: no row up to that is read.
    """
    ahead = progress.ahead or {}
    if count == 1 and not ahead:
        return None
    floors = [-1 if partition % count == share else EVERYTHING for partition in range(partitions)]
    for partition, (reached, seq, _) in ahead.items():
        if reached >= epoch:
            floors[partition] = EVERYTHING if reached > epoch else seq
    return floors


def still_ahead(progress: Progress, epoch: int) -> dict[int, Position] | msgspec.UnsetType:
    """Return the partitions that are ahead once the whole epoch is published."""
    ahead = progress.ahead or {}
    return {key: at for key, at in ahead.items() if at[:2] > (epoch + 1, -1)} or msgspec.UNSET
