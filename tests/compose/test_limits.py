"""The limits of docker-compose.yml at their bounds: a reason each, and the job comes back.

four jobs and one more │ memory of service and worker │ a full /tmp │ a full /cache
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import httpx
import pytest

from tests.compose.exactness import check_exact, table
from tests.compose.stack import Stack
from tests.support.faults.tally import FaultTally

pytestmark = [pytest.mark.engine, pytest.mark.timeout(7_200)]

MIB = 1 << 20
DRIVER_MIB = 400  # half of what a driver takes: its JVM is then the largest process
_ANONYMOUS = re.compile(r"(total_rss|anon) ")  # cgroup v1, v2
# A cache per container that can be filled without filling the machine's disk.
SMALL_CACHE = """\
services:
  spark-worker: &small
    volumes: !override ["data:/data"]
    tmpfs: ["/cache:exec,size=400m,uid=10001,gid=10001"]
  service: *small
"""


def first_job(stack: Stack) -> None:
    stack.shell.follow("Quick start", "docker compose", "TOKEN=")
    stack.shell.follow("First job", "U=", "-X PUT", "-X POST")
    stack.until(stack.rows, "the first results")


def peak_mib(stack: Stack, name: str) -> int:
    """Return the most memory that a container has had, from its own control group."""
    files = "/sys/fs/cgroup/memory/memory.max_usage_in_bytes /sys/fs/cgroup/memory.peak"
    told = stack.engine.docker(
        "exec", f"retally-test-{name}", "sh", "-c", f"cat {files} 2>/dev/null || true"
    )
    return int(told.split()[0]) // MIB


def resident_mib(stack: Stack, name: str) -> int:
    """Return the memory of a container that the kernel cannot take back."""
    files = "/sys/fs/cgroup/memory/memory.stat /sys/fs/cgroup/memory.stat"
    told = stack.engine.docker(
        "exec", f"retally-test-{name}", "sh", "-c", f"cat {files} 2>/dev/null || true"
    )
    (found,) = {line.split()[1] for line in told.splitlines() if _ANONYMOUS.match(line)}
    return int(found) // MIB


def test_four_jobs_run_at_once_and_a_fifth_is_refused(stack: Stack) -> None:
    tally = FaultTally(f"compose on engine {stack.engine.version}: four jobs at once")
    first_job(stack)
    spec = (stack.clone / "items.yaml").read_text()
    names = [f"items-{number}" for number in range(2, 6)]
    with stack.client as client:
        for name in names:
            own = spec.replace("name: items\n", f"name: {name}\n").replace("items-changes", name)
            assert client.put(f"/v1/jobs/{name}", content=own).status_code == 201
        started = [client.post(f"/v1/jobs/{name}/start") for name in names]
        assert [answer.status_code for answer in started] == [202, 202, 202, 429]
        assert started[-1].json()["code"] == "too-many-running"
        for name in names[:3]:
            stack.until(lambda name=name: rows_of(client, name), f"results of {name}")  # type: ignore[misc]
        check_exact(stack, tally, start_source=False)
        for name in names[:3]:
            stack.until(
                lambda name=name: table(rows_of(client, name)) == table(stack.rows()),  # type: ignore[misc]
                f"{name} to be as items is",
            )
    tally.further["service_peak_mib"] = peak_mib(stack, "service-1")
    tally.further["worker_peak_mib"] = peak_mib(stack, "spark-worker-1")
    tally.close()


def rows_of(client: httpx.Client, name: str) -> list[dict[str, object]]:
    answer = client.get(f"/v1/jobs/{name}/results", params={"limit": 1_000})
    return list(answer.json()["rows"]) if answer.status_code == 200 else []


def test_memory_and_disks_at_their_limits_end_with_a_reason_and_the_job_comes_back(
    stack: Stack,
) -> None:
    tally = FaultTally(f"compose on engine {stack.engine.version}: memory, /tmp and /cache full")
    (stack.clone / "compose.override.yaml").write_text(SMALL_CACHE)
    first_job(stack)
    check_exact(stack, tally)

    def at_limit(what: str, reach: Callable[[], None], leave: Callable[[], None]) -> None:
        tally.plan(what)
        failures, epoch = stack.job()["failures"], stack.epoch
        reach()
        failed = stack.until_failed(failures, what)
        tally.fire(what)
        tally.further[what] = f"{failed['failure']['code']}: {failed['reason']}"
        leave()
        began = time.monotonic()
        stack.until_healthy()
        stack.until_an_epoch_after(max(epoch, stack.epoch))
        tally.recoveries.append(time.monotonic() - began)
        check_exact(stack, tally)

    def limit(name: str, memory: str) -> None:
        container = f"retally-test-{name}"
        stack.engine.docker("update", "--memory", memory, "--memory-swap", memory, container)

    def limit_memory() -> None:
        """Leave the service what it has, and a driver that starts too little."""
        with stack.client as client:
            assert client.post("/v1/jobs/items/stop").status_code == 202
            stack.until(lambda: stack.job()["actual"] == "STOPPED", "the stop of the job")
            limit("service-1", f"{resident_mib(stack, 'service-1') + DRIVER_MIB}m")
            assert client.post("/v1/jobs/items/start").status_code == 202

    def fill(name: str, path: str) -> None:
        words = ("sh", "-c", f"cat /dev/zero > {path}")
        stack.engine.docker("exec", f"retally-test-{name}", *words, check=False)

    def remove(name: str, path: str) -> None:
        stack.engine.docker("exec", f"retally-test-{name}", "rm", path)

    def fill_caches() -> None:
        for name in workers:
            fill(name, "/cache/full")

    def empty_caches() -> None:
        for name in workers:
            remove(name, "/cache/full")

    workers = ("spark-worker-1", "spark-worker-2")
    at_limit("memory of the service", limit_memory, lambda: limit("service-1", "6g"))
    at_limit("/cache of the workers", fill_caches, empty_caches)
    # The old driver leaves as much room there as a new one takes.
    what = "/tmp of the service"
    tally.plan(what)
    fill("service-1", "/tmp/full")
    before = stack.job()["since"]
    with stack.client as client:
        assert client.post("/v1/jobs/items/restart").status_code == 202
    stack.until(lambda: stack.job().get("since", before) != before, "the restart of the job")
    tally.fire(what)
    tally.recoveries.append(stack.until_an_epoch_after(stack.epoch))
    tally.further[what] = "none" if stack.failure is None else stack.failure
    check_exact(stack, tally, start_source=False)
    remove("service-1", "/tmp/full")
    tally.close()
