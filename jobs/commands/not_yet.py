"""What a spec may say and this version of `run` does not do: refused, never ignored."""

from __future__ import annotations

from jobs.core.window_rules import closes
from schemas.job import JobSpec


def not_yet(spec: JobSpec) -> dict[tuple[str, ...], str]:
    """The keys of a spec that would do nothing in a running job yet, each with the reason."""
    reasons = {
        ("dedupe",): (
            spec.dedupe is not None and closes(spec),
            "a running job cannot tell which message a late row came in once it is derived from an "
            "image; leave dedupe or emit: final and allowed_lateness out, or use retally replay",
        ),
    }
    return {keys: reason for keys, (asked, reason) in reasons.items() if asked}
