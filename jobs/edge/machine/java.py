"""Find the Java that runs Spark and the broker.

    JAVA_HOME, or else the PATH     the machine's Java, 17 or newer
    .java, beside the jars          or else the Java that the set-up installed

The second is the Java runtime of a wheel with a small launcher (`install_launcher`). This file uses
the standard library only, because the set-up uses it before any package is installed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

from jobs.edge.machine import jars
from jobs.edge.machine.process_limits import LimitTooLow, describe_low_limits

JAVA_VERSION_MIN = 17
INSTALL = (
    "install a JDK or JRE 17 or newer (Debian and Ubuntu: apt install openjdk-17-jre-headless; "
    "macOS: brew install openjdk@17) and put java on the PATH or set JAVA_HOME"
)
_QUIET = Path(__file__).with_name("quiet_java")  # a JAVA_HOME with a launcher of the machine's Java
_WORDS_MAX = 300  # characters of what Java says, if it does not run
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')

# Spark passes options for an incubator module, which only makes its linear algebra faster, and for
# a package that Java 25 no longer has. Without the module a runtime refuses to start. It warns at
# each start about the package, and about two old ways in which Spark accesses memory.
_LAUNCHER = """\
#!/bin/sh
# Starts the Java runtime of this directory, without Spark's options that the runtime does not know,
# and without its warnings about what a later Java will refuse.
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
    """There is no Java that can run retally; the message says what to install."""


@cache
def java() -> Path:
    """Return the java command of the machine, or else the one that the set-up installed."""
    try:
        return find_machine_java()
    except JavaMissing:
        own = own_home() / "bin" / "java"
        if not own.is_file():
            raise
        return own


def find_machine_java() -> Path:
    """Return the java of JAVA_HOME if that is set, as Spark does, or else of the PATH."""
    home = os.environ.get("JAVA_HOME")
    where = f"JAVA_HOME ({home})" if home else "the PATH"
    found = shutil.which("java", path=str(Path(home, "bin")) if home else None)
    if found is None:
        raise JavaMissing(f"no java in {where}: {INSTALL}")
    works, text = _read_version(Path(found))
    version = _VERSION.search(text) if works else None
    if version is None:
        words = " ".join(text.split())[:_WORDS_MAX] or "it says nothing"
        if low := describe_low_limits():
            raise LimitTooLow(f"{found} does not run ({words}): {low}")
        raise JavaMissing(f"{found} does not run ({words}): {INSTALL}")
    if int(version[1]) < JAVA_VERSION_MIN:
        raise JavaMissing(f"{found} is Java {version[1]}: {INSTALL}")
    return Path(found)


def own_home() -> Path:
    """Return the directory beside the jars where the set-up installs a Java, if it does."""
    return jars.directory().with_name(".java")


def use_found_java() -> None:
    """Make Spark's start script use the Java that `java` finds, without the script's warnings."""
    home = java().parents[1]
    # Launchers drop the options that Java warns about; another retally's may have started us.
    if home != own_home() and home.name != _QUIET.name:
        os.environ["RETALLY_JAVA_COMMAND"] = str(java().resolve())
        home = _QUIET
    os.environ["JAVA_HOME"] = str(home)


def install_launcher(home: Path, runtime: Path) -> None:
    """Make `home` usable as JAVA_HOME; `runtime` is the Java runtime inside it."""
    launcher = home / "bin" / "java"
    launcher.parent.mkdir()
    launcher.write_text(_LAUNCHER.format(runtime=runtime.relative_to(home)))
    launcher.chmod(0o755)


def read_build(command: Path) -> str:
    """Return the version and build that a java command prints; "" if it does not run."""
    works, text = _read_version(command)
    return text if works else ""


@cache
def _read_version(command: Path) -> tuple[bool, str]:
    """Return whether a java command runs, and what it says."""
    shown = subprocess.run([command, "-version"], capture_output=True, text=True, check=False)
    return not shown.returncode, shown.stderr + shown.stdout
