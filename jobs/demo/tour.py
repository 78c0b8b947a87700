"""Tour: five things to try while the demo runs, each a line for another terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stop:
    title: str
    line: str


def tour(address: str) -> Sequence[Stop]:
    jobs = f"{address}/v1/jobs"
    return (
        Stop("a result, now", f"curl {jobs}/items/results/bolt"),
        Stop("why it is so: the values behind MAX, the epochs that changed it, and their source",
             f"curl {jobs}/items/results/bolt/explain"),
        Stop("its changes as they come, what is taken back before what replaces it",
             f"curl -N '{jobs}/items/changes?key=bolt'"),
        Stop("a second job over the first one's changes: windows that shrink and end",
             f"curl '{jobs}/ages/results?order=window_start' -H 'Accept: text/csv'"),
        Stop("messages that were refused, and why",
             f"curl '{jobs}/items/quarantine?limit=3'"),
    )  # fmt: skip
