"""Write the two lock files: `make lock`, after a change of pyproject.toml or jobs/setup/ivy.xml.

    pyproject.toml     ──► uv  ──► jobs/setup/requirements.lock   for every Python and platform
    jobs/setup/ivy.xml ──► Ivy ──► jobs/setup/jars.lock           only if stale: jars never change

Versions of the lock stay unless pyproject.toml wants others; `--upgrade` uses the newest ones. uv
is a package of the lock too: the old lock installs the uv that writes the new lock.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from jobs.edge.machine.java import JavaMissing
from jobs.setup import locked, steps
from jobs.setup.steps import SetupFailed
from setup import checkout, install
from setup.packages import locked_packages

_NAME = re.compile(r"^([a-z0-9-]+)==", re.MULTILINE)
_ENTRY = re.compile(r"^(?=[a-z0-9])", re.MULTILINE)  # the lines of hashes are indented
# Platforms that retally does not support.
_ELSEWHERE = ("sys_platform == 'win32'", "sys_platform == 'emscripten'")


def main(upgrade: bool) -> int:
    try:
        with tempfile.TemporaryDirectory() as directory:
            lock_packages(Path(directory), upgrade)
            lock_jars(Path(directory))
    except (JavaMissing, SetupFailed, subprocess.CalledProcessError) as problem:
        print(f"lock: {problem}", file=sys.stderr)
        return 1
    return 0


# --- packages ---------------------------------------------------------------------------------


def lock_packages(directory: Path, upgrade: bool) -> None:
    uv = install_uv(directory)
    wanted = checkout.wanted_packages()
    everything = directory / "everything.txt"
    everything.write_text(locked.PACKAGES.read_text())  # uv keeps the versions in this file
    every = [each for section in wanted.values() for each in section]
    newest = ["--upgrade"] if upgrade else []
    resolve(uv, every, "--generate-hashes", "-o", str(everything), *newest)
    entries = [
        each
        for each in _ENTRY.split(everything.read_text())
        if not any(elsewhere in each for elsewhere in _ELSEWHERE)
    ]
    by_section: dict[str, str] = {}
    for section in locked.SECTIONS:
        names = set(_NAME.findall(resolve(uv, wanted[section], "-c", str(everything))))
        by_section[section] = "".join(each for each in entries if _name(each) in names)
        entries = [each for each in entries if _name(each) not in names]
    checkout.write_packages(by_section)
    print(f"lock: {locked.PACKAGES} has {len(locked_packages(*locked.SECTIONS))} packages")


def install_uv(directory: Path) -> str:
    target = ["--target", str(directory / "uv")]
    steps.install_locked("lock", options=target, what="uv", by=steps.pip(sys.executable))
    return str(directory / "uv" / "bin" / "uv")


def resolve(uv: str, wanted: list[str], *options: str) -> str:
    """Return the versions of the wanted packages and their dependencies, for all platforms."""
    fixed = [
        "--universal",
        "--python-version",
        checkout.python_min(),
        "--no-header",
        "--no-annotate",
    ]
    command = [uv, "pip", "compile", "-", "--quiet", *fixed, *options]
    return subprocess.run(
        command, input="\n".join(wanted), stdout=subprocess.PIPE, text=True, check=True
    ).stdout


def _name(entry: str) -> str:
    return entry.partition("==")[0]


# --- jars -------------------------------------------------------------------------------------


def lock_jars(directory: Path) -> None:
    try:
        checkout.check_jars()
        return
    except checkout.LockStale:
        pass
    shipped = install.environment().pyspark_jars
    if shipped is None or not has_locked_pyspark(shipped):
        raise SetupFailed("jars.lock needs the locked pyspark: run make setup, then make lock")
    retrieved = directory / "jars"
    pattern = f"{retrieved}/[conf]/[organisation]/[artifact]/[revision].[ext]"
    steps.retrieve(pattern, shipped, locked.IVY_XML)
    found = remove_shipped(read_jars(retrieved), shipped)
    checkout.write_jars(found)
    print(f"lock: {locked.JARS} has {len(found)} jars")


def module_name(jar: str) -> str:
    """Return the name of a jar without its version."""
    return re.sub(r"-\d.*$", "", jar)


def remove_shipped(found: list[locked.Jar], shipped: Path) -> list[locked.Jar]:
    """Return the jars without those of Spark's configuration that pyspark has too."""
    known = {module_name(jar.name) for jar in shipped.iterdir()}
    return [jar for jar in found if jar.conf != "spark" or module_name(jar.file) not in known]


def has_locked_pyspark(shipped: Path) -> bool:
    """Return whether the pyspark of these jars has the version in pyproject.toml."""
    site = shipped.parents[1]
    wanted = [each for each in locked_packages("runtime") if each.name == "pyspark"]
    return all((site / f"pyspark-{each.version}.dist-info").exists() for each in wanted)


def read_jars(retrieved: Path) -> list[locked.Jar]:
    """Return the jars of a directory whose paths are coordinates."""
    found: list[locked.Jar] = []
    for jar in sorted(retrieved.glob("*/*/*/*.jar")):
        conf, group, artifact, _ = jar.relative_to(retrieved).parts
        found.append(locked.Jar(conf, group, artifact, jar.stem, locked.sha256(jar)))
    return found


if __name__ == "__main__":
    sys.exit(main(upgrade="--upgrade" in sys.argv[1:]))
