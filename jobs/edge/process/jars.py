"""Find the JVM jars that `make setup` fetched, and check that all of them are complete.

    .jars/spark/*.jar      jars that Spark needs beyond those of pyspark
    .jars/broker/*.jar     the class path of the embedded broker
    .jars/manifest.json    name and size of every jar, written last
    .jars/spark.jsa        the JVM's archive of Spark's classes (see jobs.edge.spark.class_archive)

The directory is in the checkout, unless RETALLY_JARS names another. This file uses the standard
library only, because the set-up uses it before any package is installed.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TypedDict

MANIFEST = "manifest.json"


class JarsMissing(RuntimeError):
    """Jars are missing or incomplete."""


class Manifest(TypedDict):
    key: str  # of the set-up that fetched them
    bytes: dict[str, int]  # size by path in the directory


def directory() -> Path:
    """Return the directory of the jars."""
    named = os.environ.get("RETALLY_JARS")
    return Path(named).absolute() if named else Path(__file__).resolve().parents[3] / ".jars"


def spark_jars() -> list[Path]:
    """Return the jars for Spark's class path."""
    return _list_jars("spark")


def broker_jars() -> list[Path]:
    """Return the jars of the embedded broker; a set-up for an image has none."""
    return _list_jars("broker")


def broker_classpath() -> str:
    """Return the class path of the embedded broker."""
    found = broker_jars()
    if not found:
        raise JarsMissing(f"{directory()} was set up without the embedded broker: run make setup")
    return os.pathsep.join(map(str, found))


def class_archive() -> Path:
    """Return the path of the archive of Spark's classes, which need not exist."""
    return directory().resolve() / "spark.jsa"


def class_archive_option() -> str:
    """Return the JVM option that maps the archive into memory; empty if there is no archive."""
    found = class_archive()
    # Without the second option, a JVM that the archive does not fit logs so at every start.
    return f"-XX:SharedArchiveFile={found} -Xlog:cds*=off" if found.is_file() else ""


def fetched_key() -> str | None:
    """Return the key of the set-up that fetched the jars; None if any jar is not complete."""
    try:
        return _read_manifest()["key"]
    except JarsMissing:
        return None


def write_manifest(where: Path, key: str) -> None:
    """Write the manifest, which makes the directory complete; call it when all jars are there."""
    sizes = {str(jar.relative_to(where)): jar.stat().st_size for jar in where.glob("*/*.jar")}
    manifest = Manifest(key=key, bytes=dict(sorted(sizes.items())))
    (where / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")


def _list_jars(kind: str) -> list[Path]:
    where = directory()
    return [where / name for name in _read_manifest()["bytes"] if name.startswith(f"{kind}/")]


def _read_manifest() -> Manifest:
    """Read the manifest; raise JarsMissing unless each jar has its size."""
    where = directory()
    try:
        manifest: Manifest = json.loads((where / MANIFEST).read_text())
    except (OSError, ValueError):
        raise JarsMissing(f"the JVM jars are not in {where}: run make setup") from None
    for name, size in manifest["bytes"].items():
        jar = where / name
        if not jar.is_file() or jar.stat().st_size != size:
            raise JarsMissing(f"{jar} is missing or incomplete: run make setup again")
    return manifest
