"""Writes the software bill of materials, CycloneDX JSON, to standard output: `make sbom`.

    setup/requirements.lock, setup/jars.lock ──► components: version, purl, SHA-256
    what is installed ──► their licences, as the packages and jars state them

`--runtime` leaves out what an image does not have: tools, tests and the embedded broker. The
same locks give the same document: it has no date and no serial number.
"""

from __future__ import annotations

import json
import sys
import tomllib
import zipfile
from importlib import metadata
from typing import Any

from jobs.edge.process import jars
from setup import locked

SPEC_VERSION = "1.6"
LICENSE_CHARACTERS_MAX = 100  # more is the text of a licence, not its name
_OSI = "License :: OSI Approved :: "
# What a running retally has of each section. A Java is there only where the machine had none.
_SCOPES = {"runtime": "required", "java": "optional"}


def document(runtime: bool = False) -> dict[str, Any]:
    project = tomllib.loads(locked.PYPROJECT.read_text())["project"]
    name, version = project["name"], project["version"]
    sections = ("runtime", "java") if runtime else locked.SECTIONS
    packages = [package(each) for each in locked.packages(*sections)]
    return {
        "$schema": f"http://cyclonedx.org/schema/bom-{SPEC_VERSION}.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": SPEC_VERSION,
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": name,
                "name": name,
                "version": version,
                "licenses": [{"expression": project["license"]}],
                "purl": f"pkg:pypi/{name}@{version}",
            }
        },
        "components": packages + [jar(each) for each in locked.jars(runtime)],
    }


def package(found: locked.Package) -> dict[str, Any]:
    """A package has a hash for each file of its version: one for a platform, and the source."""
    purl = f"pkg:pypi/{found.name}@{found.version}"
    about = {"name": found.name, "version": found.version, "purl": purl}
    scope = _SCOPES.get(found.section, "excluded")
    return _component(about, scope, found.hashes, package_license(found))


def jar(found: locked.Jar) -> dict[str, Any]:
    purl = f"pkg:maven/{found.group}/{found.artifact}@{found.version}?type=jar"
    about = {"group": found.group, "name": found.artifact, "version": found.version, "purl": purl}
    scope = "required" if found.conf == "spark" else "optional"
    component = _component(about, scope, (found.sha256,), jar_license(found))
    # Both configurations may have the same jar.
    return {**component, "bom-ref": f"{found.conf}:{purl}"}


def _component(
    about: dict[str, str], scope: str, hashes: tuple[str, ...], licenses: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "type": "library",
        "bom-ref": about["purl"],
        **about,
        "scope": scope,
        "hashes": [{"alg": "SHA-256", "content": each} for each in hashes],
        **({"licenses": licenses} if licenses else {}),
    }


# --- licences ---------------------------------------------------------------------------------


def package_license(found: locked.Package) -> list[dict[str, Any]]:
    """Return the licence of a package in CycloneDX's form; nothing if it is not installed."""
    try:
        about = metadata.metadata(found.name)
    except metadata.PackageNotFoundError:
        return []
    if about["Version"] != found.version:
        return []
    if expression := about["License-Expression"]:
        return [{"expression": expression}]
    classifiers = about.get_all("Classifier", [])
    named = [each.removeprefix(_OSI) for each in classifiers if each.startswith(_OSI)]
    return _named(named or [about["License"] or ""])


def jar_license(found: locked.Jar) -> list[dict[str, Any]]:
    """Return the licence in the manifest of a jar, which about half of them have."""
    path = jars.directory() / found.path
    if not path.exists():
        return []
    with zipfile.ZipFile(path) as archive:
        lines = archive.read("META-INF/MANIFEST.MF").decode().replace("\r\n", "\n")
    # A long line goes on after a line break and a space.
    fields = dict(each.partition(": ")[::2] for each in lines.replace("\n ", "").splitlines())
    return _named([fields.get("Bundle-License", "").partition(";")[0].strip('"')])


def _named(names: list[str]) -> list[dict[str, Any]]:
    fitting = [each for each in names if 0 < len(each) <= LICENSE_CHARACTERS_MAX]
    return [{"license": {"name": each}} for each in fitting]


if __name__ == "__main__":
    print(json.dumps(document(runtime="--runtime" in sys.argv[1:]), indent=1))
