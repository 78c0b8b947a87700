"""A replay: a message of the quarantine that was sent to its topic again, and where it is now.

It is noted before the message is sent (then `offset` is missing) and after, in a file of the job's
directory; so a message is not sent twice by mistake, and the quarantine can say what became of it.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    id: str  # EPOCH-TOPIC-PARTITION-OFFSET of the message in quarantine
    fixed: bool  # whether another text was sent than the one that was refused
    topic: str
    partition: int
    since: int  # no earlier offset can have it
    token: str  # in its header, by which it is found again
    sent_at: int  # milliseconds since 1970
    offset: int | None = None


def replay_file(directory: Path, identity: str) -> Path:
    """An id has been checked by then: no separators are in it."""
    return directory / f"{identity}.json"


def write_replay(directory: Path, replay: Replay) -> None:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = replay_file(directory, replay.id)
    fresh = path.with_suffix(".new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.encode(replay))
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


def read_replay(directory: Path, identity: str) -> Replay | None:
    try:
        text = replay_file(directory, identity).read_bytes()
    except FileNotFoundError:
        return None
    return msgspec.json.decode(text, type=Replay)
