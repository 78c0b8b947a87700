"""retally serve: runs the service in the foreground, or manages its tokens.

Nothing in jobs imports the package service, so it is loaded by name.
"""

from __future__ import annotations

import argparse
import os
import sys
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

from jobs.cli.errors import CommandFailed, UsageError
from jobs.cli.offer import MISSING, offer_setup
from jobs.cli.output import print_note
from jobs.cli.parser import require_local_master
from jobs.edge.machine.data_directory import require_writable
from jobs.edge.machine.jars import spark_jars
from jobs.edge.machine.java import java
from schemas.spec.connections import load_connections
from schemas.spec.duration import parse_duration
from schemas.spec.watermark import TimeDefaults
from schemas.table.object_path import TABLES_VARIABLE


def run(options: argparse.Namespace) -> int:
    require_writable(options.data)
    serving = import_module("service.serving")
    if options.new_token is not None:
        name, _, rest = options.new_token.partition("=")
        role, expires, lasting = rest.partition(":")
        try:
            seconds = parse_duration(lasting) // 1_000 if expires else None
            print(serving.create_token(options.data, name, role, seconds))
        except ValueError as error:
            raise UsageError(str(error)) from None
        return 0
    if options.list_tokens:
        for name, role, ends_at in serving.list_tokens(options.data):
            end = "does not expire" if ends_at is None else f"expires {_format_utc(ends_at)}"
            print(f"{name} {role}, {end}")
        return 0
    if options.revoke_token is not None:
        try:
            serving.revoke_token(options.data, options.revoke_token)
        except ValueError as error:
            raise UsageError(str(error)) from None
        return 0
    require_local_master(options)
    postgres_tls = _pair_certificate(options)
    _require_jars()
    if options.tables is not None:  # for the jobs and commands that the service starts
        os.environ[TABLES_VARIABLE] = str(options.tables)
    settings = import_module("service.settings").Settings(
        data=options.data,
        connections=load_connections(options.connections, options.brokers),
        host=options.host,
        port=options.port,
        address=options.advertise,
        postgres_port=options.pg_port,
        postgres_tls=postgres_tls,
        master=options.master,
        brokers=options.brokers,
        connections_file=options.connections,
        running_max=options.running_max,
        time_defaults=TimeDefaults(options.idle_after, options.emit_every),
        jobs_per_driver=options.jobs_per_driver,
    )
    try:
        port = serving.serve(
            settings,
            only_reads=options.read_only,
            verbose=options.verbose,
            log_format=options.log_format,
        )
    except serving.CannotServe as error:
        raise CommandFailed(str(error)) from None
    if port is not None:
        command = [sys.executable, "-m", "jobs.cli.main", *sys.argv[1:], "--port", str(port)]
        # A new process image: nothing of what only read is left.
        os.execv(sys.executable, command)  # noqa: S606
    return 0


def _pair_certificate(options: argparse.Namespace) -> tuple[Path, Path] | None:
    given = (options.pg_tls_cert, options.pg_tls_key)
    if given == (None, None):
        return None
    if None in (*given, options.pg_port):
        raise UsageError("--pg-tls-cert and --pg-tls-key belong together, and to --pg-port")
    return given


def _require_jars() -> None:
    """Say what jobs will lack, and offer to fetch it; tables can be read without it."""
    try:
        java(), spark_jars()
    except MISSING as missing:
        if not offer_setup(missing):
            print_note(f"retally: jobs cannot start: {missing}")


def _format_utc(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
