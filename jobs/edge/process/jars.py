"""The JVM jars that `make setup` fetched, and whether they are all there.

    .jars/spark/*.jar      what Spark needs beyond the jars that pyspark ships
    .jars/broker/*.jar     the class path of the embedded broker
    .jars/manifest.json    name and size of every jar, written last
    .jars/spark.jsa        Spark's classes as an archive of the JVM (see jobs.edge.spark)

The directory is in the checkout, or where RETALLY_JARS says. Standard library only: the set-up
uses this file before any package is installed.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TypedDict

MANIFEST = "manifest.json"


class JarsMissing(RuntimeError):
    """The jars are not there, or not all of them, or cut short."""


class Manifest(TypedDict):
    key: str  # of the set-up that fetched them
    bytes: dict[str, int]  # size by path in the directory


def directory() -> Path:
    named = os.environ.get("RETALLY_JARS")
    return Path(named).absolute() if named else Path(__file__).resolve().parents[3] / ".jars"


def spark_jars() -> list[Path]:
    """The jars for `spark.jars`."""
    return _fetched("spark")


def broker_jars() -> list[Path]:
    """Those of the embedded broker; a set-up for an image has none."""
    return _fetched("broker")


def broker_classpath() -> str:
    """The class path of the embedded broker."""
    found = broker_jars()
    if not found:
        raise JarsMissing(f"{directory()} was set up without the embedded broker: run make setup")
    return os.pathsep.join(map(str, found))


def class_archive() -> Path:
    """Return the path of the archive of Spark's classes, whether or not there is one."""
    return directory().resolve() / "spark.jsa"


def class_archive_option() -> str:
    """Return the JVM option that maps the archive into memory; empty where there is no archive."""
    found = class_archive()
    # A JVM that the archive does not fit would log that at every start, to no use.
    return f"-XX:SharedArchiveFile={found} -Xlog:cds*=off" if found.is_file() else ""


def fetched_key() -> str | None:
    """The key of the set-up whose jars are here, or None if anything is missing or cut short."""
    try:
        return _manifest()["key"]
    except JarsMissing:
        return None


def write_manifest(where: Path, key: str) -> None:
    """Call when all jars are there: this is what makes the directory complete."""
    sizes = {str(jar.relative_to(where)): jar.stat().st_size for jar in where.glob("*/*.jar")}
    manifest = Manifest(key=key, bytes=dict(sorted(sizes.items())))
    (where / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")


def _fetched(kind: str) -> list[Path]:
    where = directory()
    return [where / name for name in _manifest()["bytes"] if name.startswith(f"{kind}/")]


def _manifest() -> Manifest:
    where = directory()
    try:
        manifest: Manifest = json.loads((where / MANIFEST).read_text())
    except (OSError, ValueError):
        raise JarsMissing(f"the JVM jars are not in {where}: run make setup") from None
    for name, size in manifest["bytes"].items():
        jar = where / name
        if not jar.is_file() or jar.stat().st_size != size:
            raise JarsMissing(f"{jar} is missing or cut short: run make setup again")
    return manifest
