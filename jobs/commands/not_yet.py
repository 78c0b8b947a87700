"""What a spec may say and this version of `run` does not do: refused, never ignored."""

from __future__ import annotations

from schemas.job import JobSpec


def not_yet(spec: JobSpec) -> dict[tuple[str, ...], str]:
    """The keys of a spec that would do nothing in a running job yet, each with the reason."""
    reasons = {
        ("dedupe",): (
            spec.dedupe is not None,
            "a running job does not keep the last image of each row yet",
        ),
    }
    return {keys: reason for keys, (asked, reason) in reasons.items() if asked}
