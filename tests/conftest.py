"""What many tests stand on: one real broker and one Spark a worker, a topic name a test; and what
the report of a failed test says of the processes that it started."""

from __future__ import annotations

import os
import re
import resource
import signal
import sys
import time
import uuid
import warnings
from collections.abc import Generator, Iterator, Mapping
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import settings

from jobs.edge.machine.kernel_cache import use_kernel_cache
from jobs.edge.process.broker import Broker
from tests.support import processes
from tests.support.command.warm_command import warm_commands
from tests.support.jobs.worker_session import worker_session
from tests.support.runner.costs import PARTS, Cost, CostMeter, median_costs, part_of, sum_costs
from tests.support.runner.scheduling import pytest_xdist_make_scheduler
from tests.support.warm_driver import warm_driver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.jobs.epochs_by_hand import ByHand

__all__ = ["pytest_xdist_make_scheduler"]
CHECKOUT = Path(__file__).resolve().parents[1]
JVM_MARKS = ("spark", "broker")
HEAVY = (*JVM_MARKS, "browser")

# A run of `make test` tries the same examples each time, so that what it says is about the change
# under test. EXPLORE=1 looks for new ones; what it finds becomes an @example.
# An example has no time limit: on a busy machine it would say nothing about the code.
settings.register_profile("steady", derandomize=True, deadline=None)
settings.register_profile("explore", derandomize=False, deadline=None)
settings.load_profile("explore" if os.environ.get("EXPLORE") else "steady")

use_kernel_cache()
# tests/edge/spark/test_session.py looks for it in the JVM.
os.environ.setdefault("RETALLY_JAVA_OPTIONS", "-Dretally.tests=true")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write what comes out into tests/vectors/*.changes; review the difference",
    )
    parser.addoption(
        "--measure",
        action="store_true",
        help="keep what each file that passes costs in tests/costs.json; run whole files",
    )


def pytest_configure(config: pytest.Config) -> None:
    """A run in the background has Ctrl-C ignored, and what the tests start would inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.pluginmanager.register(FailuresAtOnce(config))
    if config.getoption("--measure"):
        config.pluginmanager.register(CostMeter(config))


class FailuresAtOnce:
    """A run that is ended from outside prints no summary: each failure has a line when it comes."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")  # a worker has none
        if report.failed and reporter is not None:
            crash = getattr(report.longrepr, "reprcrash", None)
            said = crash.message if crash is not None else report.longreprtext.strip()
            reporter.line("")  # ends a line of dots, which the reporter does not know of
            # Two lines of it, because an error of Java has its cause in the second one.
            first = " ".join(said.splitlines()[:2])[:600]
            reporter.write_line(f"failed in {report.when}: {report.nodeid}: {first}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark whoever uses the broker, Spark or a browser; begin with the files that take longest, so
    that the short ones that are left keep all workers busy until the end."""
    for item in items:
        for heavy in HEAVY:
            if heavy in getattr(item, "fixturenames", ()):
                item.add_marker(heavy)
    costs = {part: median_costs(part) for part in PARTS}
    items.sort(key=lambda item: -_seconds(item, costs[part_of(item)]))


def _seconds(item: pytest.Item, costs: Mapping[str, Cost]) -> float:
    """Return how long the tests of a file take; one that nobody has measured may take long."""
    known = costs.get(os.path.relpath(item.path, CHECKOUT))
    return inf if known is None else known.wall


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what the suite costs, beside what this run took."""
    for part, command in PARTS.items():
        wall, processor = sum_costs(median_costs(part))
        terminalreporter.write_line(
            f"{command}, as measured: {wall:,.0f} s in all files, {processor:,.0f} s of processors"
        )


@pytest.fixture(scope="session", autouse=True)
def jvm_starts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[processes.JvmStarts]:
    """From the first test on, processes and JVMs are recorded."""
    processes.record()
    yield processes.JvmStarts(tmp_path_factory.mktemp("java"))
    worker_session.stop()
    warm_driver.close()
    warm_commands.close()


@pytest.fixture(autouse=True)
def a_test_that_ends_its_workers_spark_is_named(request: pytest.FixtureRequest) -> Iterator[None]:
    """Those that come after it would fail without a hint of the one that did it."""
    yield
    if worker_session.restart_if_ended():
        said = f"{request.node.nodeid} has ended the Spark session that all tests here share"
        warnings.warn(said, stacklevel=1)


@pytest.fixture(autouse=True)
def a_test_that_starts_a_jvm_is_marked(
    request: pytest.FixtureRequest, jvm_starts: processes.JvmStarts
) -> Iterator[None]:
    before = jvm_starts.count
    yield
    marked = any(map(request.node.get_closest_marker, JVM_MARKS))
    if jvm_starts.count > before and not marked:
        pytest.fail("this test starts a JVM: mark it `spark` or `broker`", pytrace=False)


LIMITS = sorted({getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")})


@pytest.fixture(autouse=True)
def a_test_leaves_the_limits_of_its_process() -> Iterator[None]:
    """Some end the process much later, in a test that has nothing to do with it."""
    before = list(map(resource.getrlimit, LIMITS))
    yield
    if list(map(resource.getrlimit, LIMITS)) != before:
        pytest.fail("this test changes limits of the process that runs the tests", pytrace=False)


_BEGAN = pytest.StashKey[float]()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[_BEGAN] = time.time()
    processes.forget_ended()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the last lines of what the test started to the report of its failure."""
    report = yield
    if report.failed and _BEGAN in item.stash:
        factory: pytest.TempPathFactory = item.config._tmp_path_factory  # type: ignore[attr-defined]
        report.sections += processes.last_lines(item.stash[_BEGAN], [factory.getbasetemp()])
    return report


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name nobody has used; the test creates the topic as it needs it."""
    words = re.sub(r"[^A-Za-z0-9]+", "-", request.node.name)[:60].strip("-")
    return f"{words}-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    assert worker_session.spark is not None  # functions of Spark's columns need a running one
    return cast("SparkSession", worker_session)


@pytest.fixture
def by_hand(spark: SparkSession, broker: Broker, topic: str, tmp_path: Path) -> ByHand:
    from tests.support.jobs.epochs_by_hand import ByHand  # it imports most of the engine

    return ByHand(spark, broker.address, topic, tmp_path)


@pytest.fixture(scope="session")
def oracle() -> Path:
    """The outside vectors, which lie beside the checkout where there are any."""
    vectors = CHECKOUT.parent / "shared" / "oracle"
    if not vectors.is_dir():
        pytest.skip(f"NOT CHECKED AGAINST THE OUTSIDE VECTORS: there is no {vectors}")
    return vectors


_STATUS = pytest.StashKey[int]()


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    session.config.stash[_STATUS] = int(exitstatus)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """End the process once all is said. Native libraries of several kinds (an event loop, clients,
    file readers) have threads that outlive the interpreter, and one that is unloaded under its own
    thread ends a run that has passed with a crash."""
    status = config.stash.get(_STATUS, None)
    if status is not None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
