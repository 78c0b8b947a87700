"""The archive of classes: a start with it has it in memory, one without it is as before.

The checkout and the jars are in a directory with a blank in its name.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.edge.machine import jars
from jobs.edge.machine.java import java
from tests.support.command.lab import CHECKOUT

# Of a session: whether its JVM has mapped the archive, and whether it works.
_LOOK = """
from pathlib import Path
from jobs.edge.spark.session import session
spark = session("look")
jvm = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
print("mapped" if "spark.jsa" in Path(f"/proc/{jvm}/maps").read_text() else "not mapped")
print(spark.range(3).count())
"""


def java_home() -> Path:
    """Where the Java that runs is, whatever launcher is before it."""
    shown = subprocess.run(
        [java(), "-XshowSettings:properties", "-version"],
        capture_output=True,
        text=True,
        check=True,
    ).stderr
    (home,) = re.findall(r"java\.home = (.+)", shown)
    return Path(home)


def look(home: Path) -> tuple[list[str], str]:
    command = [sys.executable, "-c", _LOOK]
    done = subprocess.run(
        command, cwd=home, capture_output=True, text=True, timeout=240, check=True
    )
    return done.stdout.split("\n")[:2], done.stderr


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the packages and the jars of this checkout, and no archive yet."""
    home, kept = tmp_path / "my projects", jars.directory()
    found = home / "jars"
    found.mkdir(parents=True)
    for name in ("jobs", "schemas"):
        (home / name).symlink_to(CHECKOUT / name)
    for name in ("manifest.json", "spark", "broker"):
        (found / name).symlink_to(kept / name)
    monkeypatch.setenv("RETALLY_JARS", str(found))
    return home


@pytest.mark.faults
@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="what a JVM maps is seen in /proc")
def test_a_start_maps_the_archive_that_was_made_for_it(home: Path) -> None:
    if not (java_home() / "lib" / "server" / "classes.jsa").exists():
        pytest.skip("this Java came without an archive of its own classes, which ours adds to")
    done = subprocess.run(
        [sys.executable, "-m", "jobs.edge.spark.class_archive"],
        cwd=home,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert jars.class_archive() == home / "jars" / "spark.jsa"
    assert look(home)[0] == ["mapped", "3"]


@pytest.mark.faults
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_an_archive_that_does_not_fit_is_passed_over_without_a_word(home: Path) -> None:
    without, said = look(home)
    assert without == ["not mapped", "3"]
    (home / "jars" / "spark.jsa").write_bytes(b"made by another Java")
    found, said_more = look(home)
    assert found == ["not mapped", "3"]
    assert _words(said_more) == _words(said)


def _words(said: str) -> set[str]:
    """Without what differs from run to run: times and numbers of processes."""
    return {line.split(":", 1)[-1] for line in said.splitlines() if "jsa" in line or "cds" in line}
