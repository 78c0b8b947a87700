"""Why a hot state cannot be used."""

from __future__ import annotations


class HotStateError(Exception):
    """The hot state cannot be used."""


class HotStateDamaged(HotStateError):
    """The state was damaged and has been deleted; the next `catch_up` rebuilds it."""


class BucketLocked(HotStateError):
    """Another process has locked the bucket for longer than a task waits."""


class StampMoved(HotStateError):
    """Another process has changed the state since its stamp was read."""
