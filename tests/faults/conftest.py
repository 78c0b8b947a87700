"""Long runs go on where they were: `make faults ARGS="-k histories --resume"` leaves out what has
passed since any code was last changed, however the run before it ended."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
CODE = ("jobs", "schemas", "service", "tests")
PASSED = "retally/faults-passed"  # in pytest's cache


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--resume", action="store_true", help="leave out what has passed with this very code"
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.cache is not None:
        config.pluginmanager.register(Passed(config.cache))


class Passed:
    """What has passed, written down test by test."""

    def __init__(self, cache: pytest.Cache) -> None:
        self._cache = cache
        self._code = code_digest()
        known = cache.get(PASSED, {})
        self._names: list[str] = known.get(self._code, [])

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        if not config.getoption("--resume"):
            return
        done = [item for item in items if item.nodeid in self._names]
        items[:] = [item for item in items if item.nodeid not in self._names]
        config.hook.pytest_deselected(items=done)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed and report.nodeid not in self._names:
            self._names.append(report.nodeid)
            self._cache.set(PASSED, {self._code: self._names})


def code_digest() -> str:
    """The same as long as no Python file has changed."""
    digest = hashlib.blake2b(digest_size=16)
    for path in _files():
        digest.update(f"{path.relative_to(CHECKOUT)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _files() -> Iterator[Path]:
    for folder in CODE:
        yield from sorted((CHECKOUT / folder).rglob("*.py"))
