"""Conditions: the ETag of a job, and If-Match and If-None-Match of RFC 9110.

    "REVISION"         of a job without a pending spec
    "REVISION-HASH"    of a job with one: another pending spec is another ETag

A pending spec changes without a new revision. With the hash, an admin approves the pending spec
that they have read, and no other.
"""

from __future__ import annotations

import hashlib

from service.problems import Problem
from service.supervision.register import JobRecord

_HASH_CHARACTERS = 8


def make_etag(record: JobRecord) -> str:
    """Return a job's ETag: its revision, and a hash of the pending spec."""
    if record.pending is None:
        return f'"{record.revision}"'
    digest = hashlib.sha256(record.pending.encode()).hexdigest()
    return f'"{record.revision}-{digest[:_HASH_CHARACTERS]}"'


def check_conditions(
    known: JobRecord | None, if_match: str | None, if_none_match: str | None
) -> None:
    """Check the conditions of a request; raise a Problem if one of them fails."""
    if if_none_match is not None and known is not None and _matches(if_none_match, known):
        detail = f"job {known.name!r} already exists, at revision {known.revision}"
        raise Problem("job-exists", detail, status=412, headers={"ETag": make_etag(known)})
    if if_match is None:
        return
    if known is None:
        raise Problem("revision-mismatch", "there is no such job")
    if not _matches(if_match, known):
        tag = make_etag(known)
        detail = f"the job was changed meanwhile: its ETag is {tag} now"
        raise Problem("revision-mismatch", detail, headers={"ETag": tag})


def _matches(header: str, known: JobRecord) -> bool:
    """Return whether a header names the job's ETag, or its revision alone.

    Clients write a revision by hand, so it matches whatever spec is pending.
    """
    wanted = {tag.strip().removeprefix("W/") for tag in header.split(",")}
    return not wanted.isdisjoint({"*", f'"{known.revision}"', make_etag(known)})
