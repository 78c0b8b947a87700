"""What a person is told of a partition's time: where it stands, and why the others wait for it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PartitionTime:
    """One partition as the job's time has it; durations are milliseconds."""

    topic: str
    partition: int
    watermark: int | None  # None: nothing has come that tells one
    idle: bool
    paused: bool  # kept from being read, by alignment or by somebody
    unread: bool  # the broker has records that were not read yet
    silent_ms: int | None  # since its last record; None: it had none
    idle_in_ms: int | None  # when it will be idle if nothing comes; None: it will not
    holds: bool  # the job's watermark waits for this partition

    def __str__(self) -> str:
        if self.silent_ms is None:
            parts = ["no record yet"]
        else:
            parts = [f"silent for {_seconds(self.silent_ms)}"]
        if self.idle:
            parts.append("idle")
        elif self.paused:
            parts.append("paused")
        elif self.unread:
            parts.append("with unread records")
        elif self.idle_in_ms is None:
            parts.append("never idle (there is no idle_after)")
        else:
            parts.append(f"idle in {_seconds(self.idle_in_ms)}")
        return f"{self.topic} partition {self.partition}, {', '.join(parts)}"


def _seconds(ms: int) -> str:
    return f"{ms / 1_000:.0f} s" if ms >= 10_000 else f"{ms / 1_000:.1f} s"
