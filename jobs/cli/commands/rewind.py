"""retally rewind: sets a stopped job back to a savepoint or an epoch."""

from __future__ import annotations

import argparse

from jobs.cli.output import print_json
from jobs.edge.process.job_directory import existing_job
from schemas.spec.connections import load_connections
from schemas.spec.file import load_spec


def run(options: argparse.Namespace) -> None:
    place = existing_job(options.data, options.job)
    connections = load_connections(options.connections, options.brokers)
    source = connections.named(load_spec(place.spec).source.connection)
    from jobs.changing.rewind import rewind
    from jobs.edge.kafka.admin import KafkaAdmin
    from schemas.spec.connections import kafka_python_options

    with KafkaAdmin(kafka_python_options(source)) as admin:
        done = rewind(place, options.to, admin)
    target, row = done.target, done.row
    if options.json:
        print_json(
            {
                "job": place.name,
                "to": target.epoch,
                "epoch": target.epoch if row is None else row.epoch,
                "changelog_rows": 0 if row is None else row.counters["changelog_rows"],
                "kept": None if done.kept is None else done.kept.name,
            }
        )
    elif row is None:
        print(f"{place.name} is at epoch {target.epoch} already")
    else:
        print(
            f"{place.name} is at epoch {row.epoch}, which says what epoch {target.epoch} said "
            f"({row.counters['changelog_rows']} changelog rows lead there)"
        )
        if done.kept is not None:
            print(f"epoch {row.epoch - 1} is kept as savepoint {done.kept.name}")
