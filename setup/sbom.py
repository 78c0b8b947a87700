"""Write the software bill of materials, CycloneDX JSON, to standard output: `make sbom`.

    jobs/setup/requirements.lock, jobs/setup/jars.lock ──► components: version, purl, SHA-256
    installed packages and jars ──► their licences, as they state them

`--runtime` omits tools, tests and the embedded broker, which an image does not have. The same locks
give the same document, which has no date and no serial number.
"""

from __future__ import annotations

import json
import sys
import tomllib
import zipfile
from importlib import metadata
from typing import Any

from jobs.edge.machine import jars
from jobs.setup import locked
from setup import checkout
from setup.packages import Package, locked_packages

SPEC_VERSION = "1.6"
LICENSE_CHARACTERS_MAX = 100  # a longer field is the text of a licence, not its name
_OSI = "License :: OSI Approved :: "
# The scope of each section in a running retally. Java is installed only if the machine has none,
# `otel` only where somebody wants traces.
_SCOPES = {"runtime": "required", "otel": "optional", "java": "optional"}


def make_document(runtime: bool = False) -> dict[str, Any]:
    project = tomllib.loads(checkout.PYPROJECT.read_text())["project"]
    name, version = project["name"], project["version"]
    sections = ("runtime", "java") if runtime else locked.SECTIONS
    packages = [package_component(each) for each in locked_packages(*sections)]
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
        "components": packages + [jar_component(each) for each in locked.jars(runtime)],
    }


def package_component(found: Package) -> dict[str, Any]:
    """Return a package as a component, with a hash for each file of its version."""
    purl = f"pkg:pypi/{found.name}@{found.version}"
    about = {"name": found.name, "version": found.version, "purl": purl}
    scope = _SCOPES.get(found.section, "excluded")
    return _component(about, scope, found.hashes, find_package_license(found))


def jar_component(found: locked.Jar) -> dict[str, Any]:
    purl = f"pkg:maven/{found.group}/{found.artifact}@{found.version}?type=jar"
    about = {"group": found.group, "name": found.artifact, "version": found.version, "purl": purl}
    scope = "required" if found.conf == "spark" else "optional"
    component = _component(about, scope, (found.sha256,), find_jar_license(found))
    # A jar may be in both configurations.
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


def find_package_license(found: Package) -> list[dict[str, Any]]:
    """Return the licence of a package in CycloneDX's form; an empty list if it is not installed."""
    try:
        about = metadata.metadata(found.name)
    except metadata.PackageNotFoundError:
        return []
    if about["Version"] != found.version:
        return []
    if expression := about["License-Expression"]:
        return [{"expression": expression}]
    classifiers = about.get_all("Classifier", [])
    names = [each.removeprefix(_OSI) for each in classifiers if each.startswith(_OSI)]
    return _license_names(names or [about["License"] or ""])


def find_jar_license(found: locked.Jar) -> list[dict[str, Any]]:
    """Return the licence in the manifest of a jar; about half of the jars state one."""
    path = jars.directory() / found.path
    if not path.exists():
        return []
    with zipfile.ZipFile(path) as archive:
        lines = archive.read("META-INF/MANIFEST.MF").decode().replace("\r\n", "\n")
    # A long line continues after a line break and a space.
    fields = dict(each.partition(": ")[::2] for each in lines.replace("\n ", "").splitlines())
    return _license_names([fields.get("Bundle-License", "").partition(";")[0].strip('"')])


def _license_names(names: list[str]) -> list[dict[str, Any]]:
    fitting = [each for each in names if 0 < len(each) <= LICENSE_CHARACTERS_MAX]
    return [{"license": {"name": each}} for each in fitting]


if __name__ == "__main__":
    print(json.dumps(make_document(runtime="--runtime" in sys.argv[1:]), indent=1))
