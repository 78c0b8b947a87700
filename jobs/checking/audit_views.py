"""Audit all views of a job: each at the same version of the table, in one Spark session.

table at one version ──► audit of view 1 ──┐
topic, decoded once  └─► audit of view 2 ──┴─► the worst verdict, and the report of each view
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jobs.checking.audit import AuditReport, CannotAudit, Verdict, audit_table, open_session
from jobs.checking.source_rows import SourceRows
from jobs.edge.kafka.admin import KafkaAdmin
from jobs.edge.table.reading import open_views
from schemas.directory.paths import JobDirectory
from schemas.spec.connections import Connections


@dataclass(frozen=True, slots=True)
class NotAudited:
    """A view whose results cannot be recomputed."""

    verdict: Verdict
    reason: str


@dataclass(frozen=True, slots=True)
class ViewsReport:
    """The audit of a job with several views; the counts are sums over the views."""

    job: str
    epoch: int
    verdict: Verdict
    groups: int
    not_compared: int
    differing: int
    views: dict[str, AuditReport | NotAudited]  # "" is the job's own query


def audit_views(
    paths: JobDirectory, connections: Connections, admin: KafkaAdmin, master: str
) -> ViewsReport:
    """Audit each view of a job; raise CannotAudit if none can be audited."""
    views: dict[str, AuditReport | NotAudited] = {}
    readers = open_views(paths)
    with open_session(paths.name, master) as start_session:
        source = SourceRows(start_session, connections, readers.values())
        for name, reader in readers.items():
            try:
                views[name] = audit_table(reader, admin, source)
            except CannotAudit as reason:
                views[name] = NotAudited("undecided", str(reason))
    audited = [each for each in views.values() if isinstance(each, AuditReport)]
    if not audited:
        raise CannotAudit(_list_reasons(views))
    verdicts = {each.verdict for each in views.values()}
    worst: tuple[Verdict, ...] = ("different", "undecided", "equal")
    return ViewsReport(
        job=paths.name,
        epoch=audited[0].epoch,
        verdict=next(each for each in worst if each in verdicts),
        groups=sum(each.groups for each in audited),
        not_compared=sum(each.not_compared for each in audited),
        differing=sum(each.differing for each in audited),
        views=views,
    )


def _list_reasons(views: Mapping[str, AuditReport | NotAudited]) -> str:
    """Return why no view can be audited; a reason that all have is given once."""
    reasons = {name: each.reason for name, each in views.items() if isinstance(each, NotAudited)}
    if len(set(reasons.values())) == 1:
        return next(iter(reasons.values()))
    return "; ".join(f"{name or 'the query'}: {reason}" for name, reason in reasons.items())
