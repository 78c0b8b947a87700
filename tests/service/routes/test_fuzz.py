"""Every route under schemathesis: no 5xx, no answer but those that the OpenAPI document has, and no
answer without a token. What a schema cannot say (a spec that names an unknown column) may be
refused."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.access.tokens import Tokens
from tests.support.service.served import CHECKOUT, Served, end_jobs
from tests.support.service.tables import WatchedTable

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.costly("made-up requests for every route"),
]

# The same requests each time, so that a failure belongs to the change under test; EXPLORE=1 makes
# new ones.
SEED = () if os.environ.get("EXPLORE") else ("--seed", "276435178077053592409018642743497968773")
EXAMPLES = os.environ.get("RETALLY_FUZZ_EXAMPLES", "10")
# Requests wait for the next epoch, and here none comes.
CONFIGURATION = """\
[parameters]
"query.wait" = 0.05
"path.name" = "items"
"""
# Of valid requests some are refused for what they mean; with a role all are answered.
LEFT_OUT = "positive_data_acceptance"
# They are 503 here, where no broker is; tests/service/test_hostile_topics.py has them.
WITHOUT_BROKER = "^/v1/topics"


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Served]:
    token = Tokens(tmp_path / "service" / "tokens.json").add("fuzz", "admin")
    served = Served.start(tmp_path, "--running-max", "1", token=token)
    watched = WatchedTable(served)
    watched.write({"a": (1, 5), "b": (2,)}, {"a": (1,), None: (4,)})
    watched.seen()
    yield served
    assert served.stop() == 0
    end_jobs(tmp_path)


@pytest.mark.skipif(
    importlib.util.find_spec("schemathesis") is None,
    reason="schemathesis is not installed; make setup brings it",
)
def test_no_request_makes_the_service_fail_or_break_its_word(
    guarded: Served, tmp_path: Path
) -> None:
    configuration = tmp_path / "schemathesis.toml"
    configuration.write_text(CONFIGURATION)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "schemathesis.cli",
            "--config-file",
            str(configuration),
            "run",
            f"{guarded.address}/openapi.json",
            "--header",
            f"Authorization: Bearer {guarded.token}",
            "--header",
            "Accept: application/json",
            "--checks",
            "all",
            "--exclude-checks",
            LEFT_OUT,
            "--exclude-path-regex",
            WITHOUT_BROKER,
            "--max-examples",
            EXAMPLES,
            "--request-timeout",
            "20",
            "--no-color",
            *SEED,
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(
                [str(CHECKOUT), *filter(None, [os.environ.get("PYTHONPATH")])]
            ),
        },
    )
    assert done.returncode == 0, done.stdout[-6_000:] + done.stderr[-2_000:]
    assert guarded.process.poll() is None
