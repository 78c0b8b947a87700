"""A million damaged messages: the scanner raises for none, and agrees with the decoder.

It runs in a process of its own, where numba checks every index; such kernels have their own cache.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1_800)]

MESSAGES = 1_000_000
USUAL_MIN = 30_000  # damage that changes a text or a number leaves a usual message
CODE = f"""
import sys
from jobs.edge.machine.kernel_cache import use_kernel_cache
use_kernel_cache()
from tests.support.message_scans import check_mutants
print(check_mutants(sys.argv[1], {MESSAGES}, seed=11))
"""


@pytest.mark.parametrize("source_format", ["canal", "debezium", "maxwell"])
def test_a_million_damaged_messages_are_scanned_as_they_are_decoded(source_format: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    done = subprocess.run(
        [sys.executable, "-c", CODE, source_format],
        env=environment | {"NUMBA_BOUNDSCHECK": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > USUAL_MIN
