"""What a converted file does not support, and what means something else here."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.core.sql.dialect import Refusal


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

    @classmethod
    def of(cls, refusal: Refusal) -> Problem:
        advice = f" (try: {refusal.hint})" if refusal.hint else ""
        return cls(refusal.message + advice, refusal.offset or 0)
