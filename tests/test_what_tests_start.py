"""What the tests' own report says: of processes that a failed test started, and of JVMs."""

from __future__ import annotations

import re

import pytest

from tests.support.runner.other_tests import run_tests

pytestmark = pytest.mark.slow

OTHER_TESTS = """
import os, subprocess, sys
from pathlib import Path
import pytest

def java():
    subprocess.run([Path(os.environ["JAVA_HOME"]) / "bin" / "java", "Main"], check=True)

def test_unmarked():
    java()

@pytest.mark.spark
def test_marked():
    java()

def test_version_only():
    subprocess.run([Path(os.environ["JAVA_HOME"]) / "bin" / "java", "-version"], check=True)

LINES = "for number in range(60): print('line', number, flush=True)"

def test_read_to_the_end():
    subprocess.run([sys.executable, "-c", LINES], capture_output=True, text=True)
    assert False

def test_not_read_at_all():
    process = subprocess.Popen([sys.executable, "-c", LINES], stdout=subprocess.PIPE)
    process.wait()
    assert False

def test_logs(tmp_path):
    (tmp_path / "service").mkdir()
    (tmp_path / "service" / "log").write_text("".join(f"line {n}\\n" for n in range(60)))
    assert False
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What a run of the other tests prints, with a Java that does nothing."""
    home = tmp_path_factory.mktemp("others")
    java = home / "java-home" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("""#!/bin/sh\necho 'openjdk version "21.0.4"' >&2\n""")
    java.chmod(0o755)
    (home / "test_others.py").write_text(OTHER_TESTS)
    return run_tests(home, JAVA_HOME=str(home / "java-home"))


def test_a_test_that_starts_a_jvm_has_to_be_marked(report: str) -> None:
    # The closing summary repeats it, shortened by default and whole on a CI.
    assert len(re.findall(r"^this test starts a JVM: mark it", report, re.MULTILINE)) == 1
    assert re.findall(r"_ ERROR at teardown of (\w+) _", report) == ["test_unmarked"]
    assert "3 failed, 3 passed, 1 error" in report


@pytest.mark.parametrize("name", ["test_read_to_the_end", "test_not_read_at_all", "test_logs"])
def test_a_failure_shows_the_last_lines_of_what_it_started(report: str, name: str) -> None:
    own = re.split(r"^_+ \w[\w ]* _+$", report.partition(f"_ {name} _")[2], flags=re.MULTILINE)[0]
    lines = [line for line in own.splitlines() if line.startswith("line ")]
    assert lines == [f"line {number}" for number in range(20, 60)]
