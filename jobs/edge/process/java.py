"""Finds the Java that Spark and the broker run on.

    JAVA_HOME, or else the PATH     the machine's own, 17 or newer
    .java, beside the jars          or else the one that `make setup` installed for lack of it

The second one is a wheel's Java runtime behind a small launcher (`install_launcher`). Standard
library only: the set-up uses this file before any package is installed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

from jobs.edge.process import jars

JAVA_VERSION_MIN = 17
INSTALL = (
    "install a JDK or JRE 17 or newer (Debian and Ubuntu: apt install openjdk-17-jre-headless; "
    "macOS: brew install openjdk@17) and put java on the PATH or set JAVA_HOME"
)
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')

# Spark asks every Java for an incubator module, which only makes its linear algebra faster, and
# opens a package that Java 25 no longer has: without the module a runtime refuses to start, and for
# the package it warns at each start, as it does for two old ways in which Spark reaches memory.
_LAUNCHER = """\
#!/bin/sh
# Starts the Java runtime of this directory: without what Spark asks for and it does not have, and
# without its warnings of what Spark may no longer do in a later Java.
for argument do
    shift
    case "$argument" in
    --add-modules=jdk.incubator.vector | --add-opens=java.base/sun.security.action=*) ;;
    *) set -- "$@" "$argument" ;;
    esac
done
exec "$(dirname "$0")/../{runtime}/bin/java" \\
    --enable-native-access=ALL-UNNAMED --sun-misc-unsafe-memory-access=allow "$@"
"""


class JavaMissing(RuntimeError):
    """There is no Java that can carry retally; the message says what to install."""


@cache
def java() -> Path:
    """Return the java command: the machine's, or else the one that the set-up installed."""
    try:
        return machine_java()
    except JavaMissing:
        own = own_home() / "bin" / "java"
        if not own.is_file():
            raise
        return own


def machine_java() -> Path:
    """Return the java of JAVA_HOME where that is set, as Spark does, or else of the PATH."""
    home = os.environ.get("JAVA_HOME")
    where = f"JAVA_HOME ({home})" if home else "the PATH"
    found = shutil.which("java", path=str(Path(home, "bin")) if home else None)
    if found is None:
        raise JavaMissing(f"no java in {where}: {INSTALL}")
    version = _VERSION.search(build_of(Path(found)))
    if version is None:
        raise JavaMissing(f"{found} does not run: {INSTALL}")
    if int(version[1]) < JAVA_VERSION_MIN:
        raise JavaMissing(f"{found} is Java {version[1]}: {INSTALL}")
    return Path(found)


def own_home() -> Path:
    """Return where the set-up installs a Java: beside the jars, whether it is there or not."""
    return jars.directory().with_name(".java")


def use_own() -> None:
    """Have the programs that this process starts use our own Java, if that is the one we use."""
    if java().parents[1] == own_home():
        os.environ["JAVA_HOME"] = str(own_home())


def install_launcher(home: Path, runtime: Path) -> None:
    """Make `home` usable as JAVA_HOME; `runtime` is the Java runtime below it."""
    launcher = home / "bin" / "java"
    launcher.parent.mkdir()
    launcher.write_text(_LAUNCHER.format(runtime=runtime.relative_to(home)))
    launcher.chmod(0o755)


@cache
def build_of(command: Path) -> str:
    """Return what a java command prints of its version and build; nothing if it does not run."""
    shown = subprocess.run([command, "-version"], capture_output=True, text=True, check=False)
    return "" if shown.returncode else shown.stderr + shown.stdout
