"""Build the wheels of the engine and of its Python client: `make wheel`.

    client/            ──► pip ──► retally_client-*.whl
    .                  ──► pip ─► move ──► retally-*.whl  retally_engine/{jobs,schemas,service,docs}
    requirements.lock  ──► constraints.txt                  the versions that we test

`jobs`, `schemas` and `service` are at the top of a checkout, for `python -m pytest` and for an
editable installation. In an environment of users they would take these names from other packages.
"""

from __future__ import annotations

import subprocess
import sys
from base64 import urlsafe_b64encode
from hashlib import sha256
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from setup.checkout import PYPROJECT
from setup.packages import locked_packages

PARENT = "retally_engine"
_START = Path(__file__).with_name("engine.py")


def build(source: Path, where: Path) -> None:
    """Build the wheels of a checkout into a directory, and write the constraints."""
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-index"]
    options = ["--no-build-isolation", "-w", str(where)]
    subprocess.run([*pip, *options, str(source / "client"), str(source)], check=True)
    (engine,) = where.glob("retally-*.whl")
    _move(engine)
    pins = [(f"{each.name}=={each.version}", each.marker) for each in locked_packages("runtime")]
    lines = [f"{pin} ; {marker}\n" if marker else f"{pin}\n" for pin, marker in pins]
    (where / "constraints.txt").write_text("".join(lines))


def _move(wheel: Path) -> None:
    """Move the packages of a wheel into PARENT, which starts the command."""
    with ZipFile(wheel) as old:
        entries = [(each, old.read(each)) for each in old.infolist()]
    record = []
    with ZipFile(wheel, "w", ZIP_DEFLATED) as new:

        def add(name: str, content: bytes, like: ZipInfo) -> None:
            entry = ZipInfo(name, like.date_time)
            entry.external_attr = like.external_attr
            new.writestr(entry, content, ZIP_DEFLATED)
            digest = urlsafe_b64encode(sha256(content).digest()).decode().rstrip("=")
            record.append(f"{name},sha256={digest},{len(content)}\n")

        for entry, content in entries:
            name = entry.filename.partition(".dist-info/")[2]
            if not name:
                add(f"{PARENT}/{entry.filename}", content, entry)
            elif name == "METADATA":
                add(f"{PARENT}/__init__.py", _START.read_bytes(), entry)
                add(entry.filename, content, entry)
            elif name == "entry_points.txt":
                add(entry.filename, content.replace(b"jobs.cli.main", PARENT.encode()), entry)
            elif name == "top_level.txt":
                add(entry.filename, f"{PARENT}\n".encode(), entry)
            elif name == "RECORD":
                lines = "".join([*record, f"{entry.filename},,\n"])
                new.writestr(entry, lines, ZIP_DEFLATED)
            else:
                add(entry.filename, content, entry)


if __name__ == "__main__":
    build(PYPROJECT.parent, PYPROJECT.parent / "build" / "wheel")
