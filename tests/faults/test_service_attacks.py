"""Ten thousand connections of each kind that never ask for anything whole."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from tests.support.faults.tally import FaultTally
from tests.support.service.crowd import crowd
from tests.support.service.served import Served

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]
CONNECTIONS = 10_000


def test_ten_thousand_connections_keep_nobody_out(tmp_path: Path) -> None:
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if allowed < CONNECTIONS + 500:
        pytest.skip(f"NOT RUN: {allowed} open files are allowed, {CONNECTIONS + 500} are needed")
    tally = FaultTally("service, crowd of 10,000")
    served = Served.start(tmp_path)
    try:
        crowd(served, CONNECTIONS, tally)
    finally:
        assert served.stop() == 0
    tally.close()
