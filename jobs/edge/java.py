"""Finds the Java that Spark and the broker run on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

JAVA_VERSION_MIN = 17
INSTALL = (
    "install a JDK or JRE 17 or newer (Debian and Ubuntu: apt install openjdk-17-jre-headless; "
    "macOS: brew install openjdk@17) and put java on the PATH or set JAVA_HOME"
)
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


class JavaMissing(RuntimeError):
    """There is no Java that can carry retally; the message says what to install."""


@cache
def java() -> Path:
    """The java command: of JAVA_HOME where that is set, as Spark does it, else of the PATH."""
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


@cache
def build_of(command: Path) -> str:
    """What a java command says of its version and build; nothing if it does not run."""
    shown = subprocess.run([command, "-version"], capture_output=True, text=True, check=False)
    return "" if shown.returncode else shown.stderr + shown.stdout
