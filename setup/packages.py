"""The packages of requirements.lock, each with its version and hashes."""

from __future__ import annotations

import re
from dataclasses import dataclass

from jobs.setup.locked import requirements

_REQUIREMENT = re.compile(r"^([a-z0-9-]+)==([^ ]+)( ; .*)? \\\n", re.MULTILINE)
_HASH = re.compile(r"--hash=sha256:(\w+)")


@dataclass(frozen=True, slots=True)
class Package:
    """A version of a package, with the SHA-256 of each of its files."""

    section: str
    name: str
    version: str
    marker: str
    hashes: tuple[str, ...]


def locked_packages(*sections: str) -> list[Package]:
    """Return the packages of these sections."""
    found: list[Package] = []
    for section in sections:
        parts = _REQUIREMENT.split(requirements(section))
        for name, version, marker, rest in zip(*(parts[n::4] for n in range(1, 5)), strict=True):
            given = (marker or "").removeprefix(" ; ")
            found.append(Package(section, name, version, given, tuple(_HASH.findall(rest))))
    return found
