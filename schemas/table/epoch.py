"""The epoch row: what one commit says about itself, and where a start begins.

It is a row of the table (part=epochs) and not commit metadata, because commits are cleaned up and
rows are not. Nested values are JSON text in the table, so that any engine can look into them.
"""

from __future__ import annotations

from typing import Any

import msgspec

FORMAT_VERSION = 4
OLDEST_FORMAT = 3  # which had no images, and is read as it is

Offsets = dict[str, dict[str, int]]  # topic -> partition (a JSON key, so text) -> next offset


class TopicIdentity(msgspec.Struct, frozen=True):
    """A topic that was deleted and made again has another id; a start refuses it."""

    id: str
    partitions: int


class EpochRow(msgspec.Struct, frozen=True, kw_only=True):
    """One epoch: where it ended, what it counted, which files it added."""

    epoch: int
    uuid: str
    generation: int
    # "start", "data" (a micro-batch), "time" (nothing but time made it due), "rewind", "clone",
    # "evolve" (another query) or "offsets" (moved by hand).
    kind: str
    committed_at: int  # microseconds since 1970
    plan: str  # fingerprint of the plan whose state this is
    offsets: Offsets
    topics: dict[str, TopicIdentity] = {}
    watermarks: dict[str, Any] = {}
    counters: dict[str, Any] = {}
    files: dict[str, list[str]] = {}  # part -> names, relative to the table

    @property
    def begins(self) -> bool:
        """Whether history begins here: groups are named in another way than before, so nothing
        leads to them from what was."""
        return bool(self.counters.get("begins"))

    @property
    def fresh(self) -> bool:
        """Whether nothing has been computed yet: there is no time to go on from."""
        return self.kind == "start" or (self.kind in ("evolve", "offsets") and not self.watermarks)

    @property
    def moved(self) -> int | None:
        """The epoch in which offsets were moved by hand, where that still counts: from there on
        the results are not the query over the topic."""
        return self.counters.get("moved")

    @property
    def marks(self) -> dict[str, Any]:
        """What every epoch after this one says again."""
        return {} if self.moved is None else {"moved": self.moved}

    @property
    def standing(self) -> dict[str, Any]:
        """The counters of what is there, and not of what happened: an epoch that takes the state
        of this one over says them again. (`groups` it has counted itself.)"""
        kept = {name: self.counters[name] for name in ("images",) if name in self.counters}
        return kept | self.marks


JSON_FIELDS = ("offsets", "topics", "watermarks", "counters", "files")
