"""retally audit: recomputes a job's results from its topic, and compares."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from jobs.cli.output import print_json, safe
from jobs.edge.process.job_directory import existing_job
from schemas.spec.connections import load_connections
from schemas.spec.file import load_spec

if TYPE_CHECKING:
    from jobs.checking.audit import AuditReport


def run(options: argparse.Namespace) -> int:
    place = existing_job(options.data, options.job)
    connections = load_connections(options.connections, options.brokers)
    connection = connections.named(load_spec(place.spec).source.connection)
    from jobs.checking.audit import audit
    from jobs.edge.kafka.admin import KafkaAdmin
    from schemas.spec.connections import kafka_python_options

    with KafkaAdmin(kafka_python_options(connection)) as admin:
        report = audit(place, connection, admin, options.master)
    if options.json:
        print_json(asdict(report))
    else:
        _print(report)
    return 0 if report.verdict == "equal" else 1


def _print(report: AuditReport) -> None:
    read = sum(end - start for topic in report.offsets.values() for start, end in topic.values())
    print(
        f"{report.job} at epoch {report.epoch}: {report.groups} groups, recomputed from {read} "
        f"offsets of {', '.join(report.offsets)}"
    )
    if report.not_compared:
        print(f"{report.not_compared} groups were not compared: their sums are beyond DECIMAL(38)")
    for each in report.differences:
        print(f"  {_text(each.group)}\n    table       {_text(each.table)}")
        print(f"    recomputed  {_text(each.recomputed)}")
    if report.differing > len(report.differences):
        print(f"  and {report.differing - len(report.differences)} more")
    if report.odd:
        print(
            f"The source took away rows that it never gave: "
            f"{report.odd.get('dropped_retractions', 0)} such retractions were dropped, "
            f"{report.odd.get('unmatched_retractions', 0)} applied. What becomes of their groups "
            "depends on the bundles, which the topic does not tell; so differences decide nothing."
        )
    print({"equal": "equal", "different": "DIFFERENT", "undecided": "undecided"}[report.verdict])


def _text(row: object) -> str:
    return "(no such group)" if row is None else safe(json.dumps(row, ensure_ascii=False))
