"""A refused message: its row in the quarantine, its id, and its document."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from datetime import datetime
from pathlib import Path

import msgspec
from msgspec import UNSET, UnsetType

from schemas.directory.documents import replace_file
from schemas.types.moments import format_instant

# EPOCH-TOPIC-PARTITION-OFFSET: the id of a message in quarantine.
IDENTITY = re.compile(r"(\d{1,15})-([A-Za-z0-9._-]{1,249})-(\d{1,9})-(\d{1,18})", re.ASCII)
MessagePosition = tuple[int, str, int, int]  # epoch, topic, partition, offset


class UnknownMessage(LookupError):
    """The quarantine has no such message."""

    def __init__(self) -> None:
        super().__init__("the quarantine has no such message; its listing has the ids")


def parse_message_id(identity: str) -> MessagePosition:
    """Return the position of a message from its id; raise UnknownMessage without one."""
    match = IDENTITY.fullmatch(identity)
    if match is None:
        raise UnknownMessage
    epoch, topic, partition, offset = match.groups()
    return int(epoch), topic, int(partition), int(offset)


def identity_of(position: MessagePosition) -> str:
    """Return the id of a message from its position."""
    return "-".join(str(part) for part in position)


class QuarantineRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the quarantine; a column that was not read has its default."""

    epoch: int
    topic: str
    partition: int
    offset: int
    reason: str = ""
    path: str | None = None
    time: datetime | None = None
    raw: bytes | None = None
    raw_bytes: int = 0
    quarantine_code: str | None = None
    quarantine_source: str | None = None

    @property
    def position(self) -> MessagePosition:
        return self.epoch, self.topic, self.partition, self.offset


class Resent(msgspec.Struct, frozen=True):
    fixed: bool
    topic: str
    partition: int
    offset: int | None
    sent_at: str


class Quarantined(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    epoch: int
    source: str | UnsetType = UNSET  # its name, if the job has several
    topic: str
    partition: int
    offset: int
    time: str | None
    reason: str
    path: str | None
    bytes: int
    cut: bool
    raw: str | UnsetType | None = UNSET
    raw_base64: str | UnsetType = UNSET  # instead, if it is not UTF-8
    replayed: Resent | None

    @classmethod
    def of(cls, row: QuarantineRow, bytes_max: int | None = None) -> Quarantined:
        """Return the document of a row, with at most `bytes_max` of its bytes."""
        shown = None if row.raw is None else row.raw[:bytes_max]
        text, binary = _write_bytes(shown, whole=shown == row.raw)
        return cls(
            id=identity_of(row.position),
            epoch=row.epoch,
            source=row.quarantine_source or UNSET,
            topic=row.topic,
            partition=row.partition,
            offset=row.offset,
            time=None if row.time is None else format_instant(int(row.time.timestamp() * 1_000)),
            reason=row.reason,
            path=row.path,
            bytes=row.raw_bytes,
            cut=shown is not None and len(shown) < row.raw_bytes,
            raw=text,
            raw_base64=binary,
            replayed=None,
        )

    def with_replay(self, replayed: Path) -> Quarantined:
        """Return the document with when it was resent, and as which offset."""
        sent = read_replay(replayed, self.id)
        if sent is None:
            return self
        at = format_instant(sent.sent_at)
        resent = Resent(sent.fixed, sent.topic, sent.partition, sent.offset, at)
        return msgspec.structs.replace(self, replayed=resent)

    @property
    def text(self) -> str | None:
        return self.raw if isinstance(self.raw, str) else None


def read_binary(message: Quarantined) -> bytes | None:
    """Return the bytes of a message that is not UTF-8; None of another."""
    return b64decode(message.raw_base64) if isinstance(message.raw_base64, str) else None


def _write_bytes(
    shown: bytes | None, *, whole: bool
) -> tuple[str | UnsetType | None, str | UnsetType]:
    """Return bytes as text, or as base64 if they are not UTF-8."""
    if shown is None:
        return None, UNSET
    try:
        return shown.decode(), UNSET
    except UnicodeDecodeError as error:
        if not whole and error.start >= len(shown) - 3:  # a character cut in two
            return shown[: error.start].decode(), UNSET
        return UNSET, b64encode(shown).decode()


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """A quarantined message that was sent to its topic again, in a file that is written twice.

    First before it is sent, without `offset`, and then after. So a message is not sent twice by
    mistake, and the quarantine can show its replay.
    """

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
