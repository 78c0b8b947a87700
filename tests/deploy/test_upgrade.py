"""A job goes on under another version, and back: docs/upgrade.md, with an earlier version's code.

The earlier version is a commit of this repository, run with the packages of this one. Its lock
names the same, except for packages that its jobs do not use.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from jobs.edge.machine import jars
from jobs.edge.process.broker import Broker
from tests.support.command.shop import Shop, ordered, spec_text
from tests.support.topics import committed_records

EARLIER = "2cb9ef0d7e"  # 28 November 2026
CHECKOUT = Path(__file__).parents[2]
SECONDS_MAX = 300  # the earlier version compiles its kernels first

pytestmark = [
    pytest.mark.spark,
    pytest.mark.broker,
    pytest.mark.slow,
    pytest.mark.costly("the kernels of another version are compiled"),
]


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The product of the earlier version."""
    home = tmp_path_factory.mktemp("earlier")
    packed = subprocess.run(
        ["git", "archive", EARLIER, "jobs", "service", "schemas", "client", "setup"],
        cwd=CHECKOUT,
        capture_output=True,
        check=False,
    )
    if packed.returncode:
        pytest.skip(f"no commit {EARLIER} here (a clone without its history)")
    subprocess.run(["tar", "--extract"], cwd=home, input=packed.stdout, check=True)
    return home


def retally(home: Path, *words: str | Path) -> str:
    places = {"PYTHONPATH": f"{home}:{home / 'client'}", "RETALLY_JARS": str(jars.directory())}
    done = subprocess.run(
        [sys.executable, "-m", "jobs.cli.main", *words],
        cwd=home,
        env=os.environ | places,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_job_is_exact_after_an_upgrade_and_a_way_back(
    broker: Broker, earlier: Path, tmp_path: Path
) -> None:
    shop = Shop(broker.address, f"shop-{uuid.uuid4().hex[:8]}", seed=11)
    sink = f"{shop.topic}-changes"
    spec, data = tmp_path / "items.yaml", tmp_path / "data"
    spec.write_text(spec_text("items", shop.topic, sink))
    place = ("--data", data, "--brokers", broker.address)
    for home in (earlier, CHECKOUT, earlier, CHECKOUT):
        shop.feed(150)
        retally(home, "run", spec, *place, "--until-caught-up")
        results: dict[bytes, dict[str, Any]] = {}
        for record in committed_records(broker.address, sink):
            change = json.loads(record.value)
            if change["op"] in ("+I", "+U"):
                results[record.key] = change["row"]
            elif change["op"] == "-D":
                del results[record.key]
        assert ordered([*results.values()]) == shop.truth()
    for home in (earlier, CHECKOUT):
        assert "equal" in retally(home, "audit", "items", *place)
    shop.close()
