"""The two lock files: all packages and jars that the set-up installs, with their SHA-256.

    requirements.lock   packages, in pip's format, in sections (--- runtime, --- dev, ...)
    jars.lock           jars: SHA-256, configuration, Maven coordinates

`make lock` writes them (setup/lock.py). Each starts with a digest of its sources, which shows
without a network that a lock is stale; an installed package has no sources, and does not ask.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = ROOT / "pyproject.toml"  # of a checkout
IVY_XML = Path(__file__).with_name("ivy.xml")
PACKAGES = Path(__file__).with_name("requirements.lock")
JARS = Path(__file__).with_name("jars.lock")

# A section has the packages that earlier sections lack. An image has only these two.
RUNTIME = ("build", "runtime")
SECTIONS = (*RUNTIME, "dev", "java", "lock")

_ADVICE = "run make lock, and commit its changes"
_MADE_FROM = "# made from: "
_SECTION = re.compile(r"^# --- (\w+)\n", re.MULTILINE)
_REQUIREMENT = re.compile(r"^([a-z0-9-]+)==([^ ]+)( ; .*)? \\\n", re.MULTILINE)
_HASH = re.compile(r"--hash=sha256:(\w+)")


class LockStale(RuntimeError):
    """A lock file does not belong to the current checkout."""


@dataclass(frozen=True, slots=True)
class Package:
    """A version of a package, with the SHA-256 of each of its files."""

    section: str
    name: str
    version: str
    marker: str
    hashes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Jar:
    """A jar of a configuration of ivy.xml."""

    conf: str
    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file(self) -> str:
        """The name of the file."""
        return f"{self.artifact}-{self.version}.jar"

    @property
    def path(self) -> str:
        """The path in the directory of jars."""
        return f"{self.conf}/{self.file}"


def digest(*parts: bytes | str) -> str:
    """Return the SHA-256 of a list of parts."""
    sha = hashlib.sha256()
    for part in parts:
        sha.update(part if isinstance(part, bytes) else part.encode())
        sha.update(b"\0")
    return sha.hexdigest()


# --- packages ---------------------------------------------------------------------------------


def wanted_packages() -> dict[str, list[str]]:
    """Return the requirements of pyproject.toml by section, unresolved."""
    project = tomllib.loads(PYPROJECT.read_text())
    extras = project["project"]["optional-dependencies"]
    build, runtime = project["build-system"]["requires"], project["project"]["dependencies"]
    return {"build": build, "runtime": runtime, **extras}


def python_min() -> str:
    wanted: str = tomllib.loads(PYPROJECT.read_text())["project"]["requires-python"]
    return wanted.removeprefix(">=")


def project_metadata() -> str:
    """Return the metadata of the project's own installation, with its scripts and data files.

    It excludes the settings of ruff, mypy and pytest in the same file.
    """
    project = tomllib.loads(PYPROJECT.read_text())
    return json.dumps([project["project"], project["tool"]["setuptools"]])


def packages_source() -> str:
    return digest(json.dumps(wanted_packages(), sort_keys=True), python_min())


def check_packages() -> None:
    """Raise LockStale unless the lock of the packages belongs to pyproject.toml."""
    if not _is_current(PACKAGES, packages_source()):
        raise LockStale(f"{PACKAGES.name} is not current for pyproject.toml: {_ADVICE}")


def requirements(*sections: str) -> str:
    """Return these sections of the lock, for `pip install --require-hashes -r`."""
    parts = _SECTION.split(PACKAGES.read_text())
    by_name = dict(zip(parts[1::2], parts[2::2], strict=True))
    return "".join(by_name[section] for section in sections)


def packages(*sections: str) -> list[Package]:
    """Return the packages of these sections."""
    found: list[Package] = []
    for section in sections:
        parts = _REQUIREMENT.split(requirements(section))
        for name, version, marker, rest in zip(*(parts[n::4] for n in range(1, 5)), strict=True):
            given = (marker or "").removeprefix(" ; ")
            found.append(Package(section, name, version, given, tuple(_HASH.findall(rest))))
    return found


def write_packages(by_section: dict[str, str]) -> None:
    sections = "".join(f"\n# --- {name}\n{by_section[name]}" for name in SECTIONS)
    head = "# Every package that the set-up installs, with the SHA-256 of each of its files.\n"
    PACKAGES.write_text(f"{head}# Made by make lock.\n{_MADE_FROM}{packages_source()}\n{sections}")


# --- jars -------------------------------------------------------------------------------------


def jars_source() -> str:
    """Return a digest of the wanted jars and of pyspark, whose jars are excluded."""
    pyspark = [each for each in wanted_packages()["runtime"] if each.startswith("pyspark==")]
    return digest(IVY_XML.read_bytes(), *pyspark)


def check_jars() -> None:
    """Raise LockStale unless the lock of the jars belongs to ivy.xml."""
    if not _is_current(JARS, jars_source()):
        raise LockStale(f"{JARS.name} is not current for ivy.xml and pyspark: {_ADVICE}")


def jars(runtime: bool = False) -> list[Jar]:
    """Return the locked jars; with `runtime` without the jars of the embedded broker."""
    found: list[Jar] = []
    for line in JARS.read_text().splitlines():
        if not line.startswith("#"):
            sha256, conf, coordinates = line.split()
            group, artifact, version = coordinates.split(":")
            found.append(Jar(conf, group, artifact, version, sha256))
    return [jar for jar in found if jar.conf == "spark" or not runtime]


def write_jars(found: list[Jar]) -> None:
    head = "# Every jar that the set-up fetches, with its SHA-256. Made by make lock.\n"
    lines = [f"{j.sha256} {j.conf} {j.group}:{j.artifact}:{j.version}\n" for j in found]
    JARS.write_text(f"{head}{_MADE_FROM}{jars_source()}\n{''.join(lines)}")


def ivy_xml(wanted: list[Jar]) -> str:
    """Return the jars for Ivy, each alone: the lock has what they depend on."""
    configurations = "".join(
        f'<conf name="{conf}"/>' for conf in {jar.conf: None for jar in wanted}
    )
    dependencies = "".join(
        f'<dependency org="{jar.group}" name="{jar.artifact}" rev="{jar.version}"'
        f' conf="{jar.conf}->default" transitive="false"/>\n'
        for jar in wanted
    )
    return (
        '<ivy-module version="2.0"><info organisation="retally" module="jars"/>\n'
        f"<configurations>{configurations}</configurations>\n"
        f"<dependencies>\n{dependencies}</dependencies></ivy-module>"
    )


def differing_jars(where: Path, runtime: bool = False) -> list[str]:
    """Return the paths in a directory of jars that differ from the lock, sorted."""
    locked = {jar.path: jar.sha256 for jar in jars(runtime)}
    present = {str(jar.relative_to(where)): sha256(jar) for jar in where.glob("*/*.jar")}
    return sorted({path for path, _ in locked.items() ^ present.items()})


def sha256(file: Path) -> str:
    """Return the SHA-256 of a file."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _is_current(lock: Path, source: str) -> bool:
    return f"{_MADE_FROM}{source}\n" in lock.read_text()
