"""A replay: a quarantined message that was sent to its topic again, and its new offset.

The command writes this file twice: before it sends the message, without `offset`, and after. So a
message is not sent twice by mistake, and the quarantine can show its replay.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from schemas.directory.documents import replace_file


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    id: str  # EPOCH-TOPIC-PARTITION-OFFSET of the message in quarantine
    fixed: bool  # whether the message was corrected
    topic: str
    partition: int
    since: int  # the end offset before sending; the message is not before it
    token: str  # in the header of the sent message, to find it again
    sent_at: int  # milliseconds since 1970
    offset: int | None = None


def replay_file(directory: Path, identity: str) -> Path:
    """Return the path of a replay's file; the caller has checked that the id has no separators."""
    return directory / f"{identity}.json"


def write_replay(directory: Path, replay: Replay) -> None:
    replace_file(replay_file(directory, replay.id), msgspec.json.encode(replay), durable=True)


def read_replay(directory: Path, identity: str) -> Replay | None:
    try:
        text = replay_file(directory, identity).read_bytes()
    except FileNotFoundError:
        return None
    return msgspec.json.decode(text, type=Replay)
