"""Find the JVM jars that the set-up fetched, and check that all of them are complete.

    spark/*.jar      jars that Spark needs beyond those of pyspark
    broker/*.jar     the class path of the embedded broker
    manifest.json    name and size of every jar, written last
    spark.jsa        the JVM's archive of Spark's classes (see jobs.edge.spark.class_archive)

The directory is RETALLY_JARS, or else .jars of the checkout, or else that of an installed package:

    RETALLY_HOME, or else XDG_CACHE_HOME/retally, or else ~/.cache/retally
        └─► the digest of the lock files ─► jars, .java    shared by versions with the same locks

This file uses the standard library only: the set-up uses it before any package is installed.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TypedDict

MANIFEST = "manifest.json"
_ROOT = Path(__file__).resolve().parents[3]  # of a checkout, or site-packages
_LOCKED = _ROOT / "jobs" / "setup"
_DIGEST_CHARACTERS = 12


class JarsMissing(RuntimeError):
    """Jars are missing or incomplete."""


class Manifest(TypedDict):
    key: str  # of the set-up that fetched them
    bytes: dict[str, int]  # size by path in the directory


def directory() -> Path:
    if named := os.environ.get("RETALLY_JARS"):
        return Path(named).absolute()
    return _ROOT / ".jars" if is_checkout() else user_cache() / _digest_of_lock() / "jars"


def is_checkout() -> bool:
    """Return whether this code is in a checkout; else it is an installed package."""
    return (_ROOT / "setup" / "install.py").is_file()


def setup_command() -> str:
    """Return the command that sets up what is missing."""
    return "make setup" if is_checkout() else "retally setup"


def user_cache() -> Path:
    """Return the directory of an installed retally for what it downloads and compiles."""
    named = os.environ.get("RETALLY_HOME")
    return Path(named).absolute() if named else own_cache()


def own_cache() -> Path:
    """Return the directory to which this user may write, whatever RETALLY_HOME says."""
    home = os.path.expanduser("~")  # "~" itself for a user whom the host does not know
    cache = Path(home) / ".cache" if os.path.isabs(home) else Path(tempfile.gettempdir())
    own = os.environ.get("XDG_CACHE_HOME")
    return (Path(own) if own else cache) / "retally"


@cache
def _digest_of_lock() -> str:
    """Return a name for the wanted jars and Java, which another version may want in others."""
    known = sha256()
    for name in ("ivy.xml", "jars.lock", "requirements.lock"):
        known.update((_LOCKED / name).read_bytes())
    return known.hexdigest()[:_DIGEST_CHARACTERS]


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
        raise JarsMissing(
            f"{directory()} was set up without the embedded broker: run {setup_command()}"
        )
    return os.pathsep.join(map(str, found))


def class_archive() -> Path:
    """Return the path of the archive of Spark's classes, which need not exist."""
    name = "spark.jsa"
    if not is_checkout():  # an archive belongs to the paths of one environment's pyspark
        name = f"spark-{sha256(sys.prefix.encode()).hexdigest()[:_DIGEST_CHARACTERS]}.jsa"
    return directory().resolve() / name


def class_archive_option() -> str:
    """Return the JVM option that maps the archive into memory; empty if there is no archive."""
    found = class_archive()
    # Without the second option, a JVM that the archive does not fit logs so at every start.
    return f'"-XX:SharedArchiveFile={found}" -Xlog:cds*=off' if found.is_file() else ""


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
        raise JarsMissing(f"the JVM jars are not in {where}: run {setup_command()}") from None
    for name, size in manifest["bytes"].items():
        jar = where / name
        if not jar.is_file() or jar.stat().st_size != size:
            raise JarsMissing(f"{jar} is missing or incomplete: run {setup_command()} again")
    return manifest
