"""What a converted file does not support, and what means something else here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Note:
    """What a reader of the spec has to know; `differs` if a result may differ from Flink's."""

    text: str
    differs: bool = False
    offset: int = 0  # in the file, of the text that the note is about


@dataclass(frozen=True, slots=True)
class Problem:
    """What is not supported, and where: an offset in the file."""

    reason: str
    offset: int


class NotTakenError(Exception):
    """The statement has no counterpart."""

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(reason)
        self.problem = Problem(reason, offset)
