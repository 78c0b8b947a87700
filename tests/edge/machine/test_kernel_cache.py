"""Compiled kernels: a set-up is complete or not, and nothing of the cache can stop a job."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.edge.machine import jars, kernel_cache


def load(cache: Path) -> str:
    """Load the kernels in a process of its own, and return what it says."""
    code = "from jobs.edge.machine.kernel_cache import load_kernels; print(load_kernels())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"NUMBA_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_a_set_up_is_complete_once_the_kernels_were_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = tmp_path / "beside"
    beside.mkdir()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "half").touch()
    assert not kernel_cache.has_kernels()
    monkeypatch.setattr(kernel_cache, "load_kernels", lambda: False)
    assert kernel_cache.main() == 1
    assert not kernel_cache.has_kernels()
    monkeypatch.setattr(kernel_cache, "load_kernels", lambda: True)
    assert kernel_cache.main() == 0
    assert kernel_cache.has_kernels()
    assert beside.is_dir()


def test_a_damaged_cache_is_no_reason_to_fail(tmp_path: Path) -> None:
    cache = shutil.copytree(kernel_cache.use_kernel_cache(), tmp_path / "cache")
    assert load(cache) == "True"
    indexes = list(cache.rglob("*.nbi"))
    assert indexes
    for index in indexes:
        index.write_bytes(b"")
    assert load(cache) == "False"


def test_without_a_home_the_cache_is_in_the_directory_for_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RETALLY_JARS", "/proc/none")
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda _: "~")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    assert kernel_cache.use_kernel_cache().is_relative_to(tmp_path)


def test_a_read_only_installation_lends_its_kernels_to_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container: so its first job does not compile them. RETALLY_HOME is everybody's."""
    monkeypatch.setenv("RETALLY_JARS", str(tmp_path / "jars"))
    monkeypatch.setenv("RETALLY_HOME", str(tmp_path / "jars"))
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    installed = kernel_cache.use_kernel_cache()
    assert installed.is_relative_to(tmp_path / "jars")
    (installed / "code").mkdir(parents=True)
    (installed / "code" / "kernel.nbc").write_text("machine code")
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write to a read-only directory

    def find() -> Path:
        monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
        return kernel_cache.use_kernel_cache()

    assert find().is_relative_to(tmp_path / "cache")
    assert not find().exists(), "what is not complete is not lent"
    (installed / "complete").touch()
    assert (find() / "code" / "kernel.nbc").read_text() == "machine code"
    assert kernel_cache.has_kernels()
    (find() / "code" / "own.nbc").touch()
    (installed / "code" / "kernel.nbc").write_text("newer")
    assert (find() / "code" / "kernel.nbc").read_text() == "machine code", "it is copied once"
    assert list((tmp_path / "cache" / "retally" / "kernels").iterdir()) == [find()]


def test_versions_side_by_side_share_the_jars_and_nothing_that_one_of_them_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RETALLY_HOME", str(tmp_path))
    monkeypatch.delenv("RETALLY_JARS", raising=False)
    monkeypatch.setattr(jars, "is_checkout", lambda: False)

    def find() -> tuple[Path, Path, Path]:
        monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
        return jars.directory(), jars.class_archive(), kernel_cache.use_kernel_cache()

    first = find()
    other = tmp_path / "other" / "kernels"
    shutil.copytree(kernel_cache._SOURCES, other)
    monkeypatch.setattr(kernel_cache, "_SOURCES", other)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "other"))
    second = find()
    assert first[0] == second[0]
    assert first[1] != second[1]
    assert first[2] != second[2]
    assert all(path.is_relative_to(tmp_path) for path in (*first, *second))
