"""The two lock files: all packages and jars that the set-up installs, with their SHA-256.

    requirements.lock   packages, in pip's format, in sections (--- runtime, --- dev, ...)
    jars.lock           jars: SHA-256, configuration, Maven coordinates

`make lock` writes them (setup/lock.py).
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

IVY_XML = Path(__file__).with_name("ivy.xml")
PACKAGES = Path(__file__).with_name("requirements.lock")
JARS = Path(__file__).with_name("jars.lock")

# A section has the packages that earlier sections lack. An image has only these two.
RUNTIME = ("build", "runtime")
TESTS = ("otel", "dev")
SECTIONS = (*RUNTIME, *TESTS, "java", "lock")

_SECTION = re.compile(r"^# --- (\w+)\n", re.MULTILINE)


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


def requirements(*sections: str) -> str:
    """Return these sections of the lock, for `pip install --require-hashes -r`."""
    parts = _SECTION.split(PACKAGES.read_text())
    by_name = dict(zip(parts[1::2], parts[2::2], strict=True))
    return "".join(by_name[section] for section in sections)


# --- jars -------------------------------------------------------------------------------------


def jars(runtime: bool = False) -> list[Jar]:
    """Return the locked jars; with `runtime` without the jars of the embedded broker."""
    found: list[Jar] = []
    for line in JARS.read_text().splitlines():
        if not line.startswith("#"):
            sha256, conf, coordinates = line.split()
            group, artifact, version = coordinates.split(":")
            found.append(Jar(conf, group, artifact, version, sha256))
    return [jar for jar in found if jar.conf == "spark" or not runtime]


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
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
