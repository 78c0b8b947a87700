"""A real PostgreSQL, to compare with; Debian's package `postgresql` has it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from jobs.edge.process.broker import free_port
from tests.support.service.served import eventually

HOST = "127.0.0.1"


def _find_programs() -> Path | None:
    """Return the folder of the server's programs, which is not always in PATH."""
    found = shutil.which("postgres")
    folders = [Path(found).resolve().parent] if found else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((each for each in folders if (each / "initdb").exists()), None)


PROGRAMS = _find_programs()


def needs_postgres() -> pytest.MarkDecorator:
    return pytest.mark.skipif(
        PROGRAMS is None or shutil.which("psql") is None,
        reason="NOT COMPARED WITH A REAL POSTGRESQL: there is none (Debian: postgresql)",
    )


@contextmanager
def run_postgres() -> Iterator[str]:
    """Run a server of its own; yield the address of its database."""
    assert PROGRAMS is not None
    # It refuses to run as root.
    user = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        if user:
            shutil.chown(name, "postgres")
        data = f"{name}/data"
        made = [
            f"{PROGRAMS}/initdb",
            "-U",
            "me",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C.UTF-8",
            data,
        ]
        subprocess.run([*user, *made], check=True, capture_output=True, cwd=name)
        port = free_port(HOST)
        settings = {
            "port": port,
            "timezone": "UTC",
            "unix_socket_directories": name,
            "fsync": "off",
        }
        given = [f"-c{key}={value}" for key, value in settings.items()]
        with (
            Path(name, "log").open("wb") as log,
            subprocess.Popen(
                [*user, f"{PROGRAMS}/postgres", "-D", data, *given], stderr=log, cwd=name
            ) as server,
        ):
            address = f"postgresql://me@{HOST}:{port}/postgres"
            try:
                eventually(lambda: _answers(address), 30)
                yield address
            finally:
                pid = int(Path(data, "postmaster.pid").read_text().split()[0])
                os.kill(pid, 2)  # ends its connections; runuser passes no signal on
                server.wait(30)


def _answers(address: str) -> bool:
    try:
        psycopg.connect(address).close()
    except psycopg.OperationalError:
        return False
    return True
