"""The time of one partition as status pages show it: watermark, idle or paused, who waits."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PartitionTime:
    """The time of one partition; durations are in milliseconds."""

    topic: str
    partition: int
    watermark: int | None  # None: no record has set one yet
    idle: bool
    paused: bool  # by alignment or by the operator
    unread: bool  # the broker has records that were not read yet
    silent_ms: int | None  # since its last record; None: no record yet
    idle_in_ms: int | None  # if no record comes; None: never
    holds: bool  # the job's watermark waits for this partition
    empty: bool = False  # the broker has no record that the job could read
    follows: bool = False  # the job that writes the topic, not its records

    def __str__(self) -> str:
        if self.follows:
            parts = ["follows the progress of the job that writes it"]
        elif self.silent_ms is None:
            parts = ["empty" if self.empty else "no record yet"]
        else:
            parts = [f"silent for {_seconds(self.silent_ms)}"]
        if self.idle:
            parts.append("idle")
        elif self.paused:
            parts.append("paused")
        elif self.unread:
            parts.append("with unread records")
        elif self.follows:
            pass
        elif self.idle_in_ms is None:
            parts.append("never idle (there is no idle_after)")
        else:
            parts.append(f"idle in {_seconds(self.idle_in_ms)}")
        return f"{self.topic} partition {self.partition}, {', '.join(parts)}"


def _seconds(ms: int) -> str:
    return f"{ms / 1_000:.0f} s" if ms >= 10_000 else f"{ms / 1_000:.1f} s"
