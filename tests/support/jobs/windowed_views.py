"""Views with windows that close, their messages, and the audit of one view."""

from __future__ import annotations

import json
from typing import Any

from jobs.checking.audit import AuditReport, audit_table
from jobs.checking.source_rows import SourceRows
from jobs.edge.kafka.admin import KafkaAdmin
from jobs.edge.table.reading import TableReader
from schemas.directory.paths import JobDirectory
from schemas.spec.connections import load_connections
from tests.support.jobs.epochs_by_hand import EpochsByHand

WINDOWS = {
    "query": "SELECT k, window_start, window_end, COUNT(*) AS hits FROM t "
    "GROUP BY k, TUMBLE(t, INTERVAL '10' SECOND)",
    "state": {"buckets": 4},
}
KEYS: dict[str, Any] = {
    "columns": {"k": "STRING", "t": "TIMESTAMP(3)"},
    "watermark": {"time": {"column": "t"}, "delay": "1s", "idle_after": "never"},
}


def at(second: int, k: str = "a") -> bytes:
    time = f"1970-01-01 00:{second // 60:02}:{second % 60:02}.000"
    return json.dumps({"type": "INSERT", "data": [{"k": k, "t": time}]}).encode()


def audited(job: EpochsByHand, view: str, place: JobDirectory | None = None) -> AuditReport:
    """The audit of a view of this job, or of another job with the same topic."""
    connections = load_connections(None, job.brokers)
    reader = TableReader.open((place or job.place).at_view(view))
    with KafkaAdmin({"bootstrap_servers": [job.brokers]}) as admin:
        return audit_table(reader, admin, SourceRows(lambda: job.spark, connections, [reader]))
