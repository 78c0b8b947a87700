"""The locks of a checkout: whether they are current, and writing them.

Each lock starts with a digest of its sources. So a stale lock shows without a network.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

from jobs.setup import locked

PYPROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"
CLIENT = PYPROJECT.parent / "client" / "pyproject.toml"

_ADVICE = "run make lock, and commit its changes"
_MADE_FROM = "# made from: "


class LockStale(RuntimeError):
    """A lock file does not belong to the current checkout."""


# --- packages ---------------------------------------------------------------------------------


def wanted_packages() -> dict[str, list[str]]:
    """Return the requirements of both packages of ours by section, unresolved.

    The engine needs the client, which no index has: its requirements stand for it.
    """
    project, client = (tomllib.loads(each.read_text()) for each in (PYPROJECT, CLIENT))
    ours = f"{client['project']['name']}=={client['project']['version']}"
    runtime = [each for each in project["project"]["dependencies"] if each != ours]
    return {
        "build": project["build-system"]["requires"],
        "runtime": runtime + client["project"]["dependencies"],
        **project["project"]["optional-dependencies"],
        **project["dependency-groups"],
    }


def python_min() -> str:
    wanted: str = tomllib.loads(PYPROJECT.read_text())["project"]["requires-python"]
    return wanted.removeprefix(">=")


def project_metadata() -> str:
    """Return the metadata of the project's own installation, with its scripts and data files.

    It excludes the settings of ruff, mypy and pytest in the same file.
    """
    both = [tomllib.loads(each.read_text()) for each in (PYPROJECT, CLIENT)]
    return json.dumps([[each["project"], each["tool"]["setuptools"]] for each in both])


def packages_source() -> str:
    return locked.digest(json.dumps(wanted_packages(), sort_keys=True), python_min())


def check_packages() -> None:
    """Raise LockStale unless the lock of the packages belongs to the two pyproject.toml."""
    if not _is_current(locked.PACKAGES, packages_source()):
        raise LockStale(f"{locked.PACKAGES.name} is not current for pyproject.toml: {_ADVICE}")


def write_packages(by_section: dict[str, str]) -> None:
    sections = "".join(f"\n# --- {name}\n{by_section[name]}" for name in locked.SECTIONS)
    head = "# Every package that the set-up installs, with the SHA-256 of each of its files.\n"
    locked.PACKAGES.write_text(
        f"{head}# Made by make lock.\n{_MADE_FROM}{packages_source()}\n{sections}"
    )


# --- jars -------------------------------------------------------------------------------------


def jars_source() -> str:
    """Return a locked.digest of the wanted jars and of pyspark, whose jars are excluded."""
    pyspark = [each for each in wanted_packages()["runtime"] if each.startswith("pyspark==")]
    return locked.digest(locked.IVY_XML.read_bytes(), *pyspark)


def check_jars() -> None:
    """Raise LockStale unless the lock of the jars belongs to ivy.xml."""
    if not _is_current(locked.JARS, jars_source()):
        raise LockStale(f"{locked.JARS.name} is not current for ivy.xml and pyspark: {_ADVICE}")


def write_jars(found: list[locked.Jar]) -> None:
    head = "# Every jar that the set-up fetches, with its SHA-256. Made by make lock.\n"
    lines = [f"{j.sha256} {j.conf} {j.group}:{j.artifact}:{j.version}\n" for j in found]
    locked.JARS.write_text(f"{head}{_MADE_FROM}{jars_source()}\n{''.join(lines)}")


def _is_current(lock: Path, source: str) -> bool:
    return f"{_MADE_FROM}{source}\n" in lock.read_text()
