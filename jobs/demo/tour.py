"""Tour: five command lines to try in another terminal while the demo runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stop:
    title: str
    line: str


def list_stops(address: str) -> Sequence[Stop]:
    """Return the stops of the tour for a service's address."""
    jobs = f"{address}/v1/jobs"
    return (
        Stop("the current result of a group", f"curl {jobs}/items/results/bolt"),
        Stop(
            "explain it: the values behind MAX, the epochs that changed it, their source offsets",
            f"curl {jobs}/items/results/bolt/explain",
        ),
        Stop(
            "follow its changes: each retraction comes before the row that replaces it",
            f"curl -N '{jobs}/items/changes?key=bolt'",
        ),
        Stop(
            "a second job over the changes of the first: windows that shrink and disappear",
            f"curl '{jobs}/ages/results?order=window_start' -H 'Accept: text/csv'",
        ),
        Stop(
            "messages that are bad on purpose, each with the reason of its refusal",
            f"curl '{jobs}/items/quarantine?limit=3'",
        ),
    )
