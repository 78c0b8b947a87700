"""Specs from a file of Flink SQL, by the command `retally from-flink`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from schemas.limits import SHORT_COMMAND_SECONDS_MAX
from service.problems import Problem

_CONNECTIONS = "connections"  # of the brokers in the file; the service has its own


class FlinkSpecs(NamedTuple):
    """The spec of each job, and what is not taken or differs, a line each."""

    specs: dict[str, str]
    notes: list[str]


def convert_flink_sql(sql: bytes) -> FlinkSpecs:
    """Return the specs of a file; raise a Problem if the command does not end. It blocks."""
    with TemporaryDirectory() as folder:
        file, out = Path(folder) / "flink.sql", Path(folder) / "jobs"
        file.write_bytes(sql)
        command = [
            sys.executable,
            "-m",
            "jobs.cli.main",
            "from-flink",
            str(file),
            "--out",
            str(out),
        ]
        try:
            done = subprocess.run(
                command, capture_output=True, timeout=SHORT_COMMAND_SECONDS_MAX, check=False
            )
        except subprocess.TimeoutExpired:
            raise Problem("spec-invalid", "the file takes too long to read; split it") from None
        notes = done.stderr.decode("utf-8", "replace").replace(f"{file}:", "")
        specs = {path.stem: path.read_text() for path in sorted(out.glob("*.yaml"))}
    specs.pop(_CONNECTIONS, None)
    return FlinkSpecs(specs, notes.splitlines())
