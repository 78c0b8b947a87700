"""A real Prometheus with the rules of deploy/alerts.yaml, which scrapes as docs/scale.md says.

It is found in PATH; Debian's package `prometheus` has it.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from jobs.edge.process.broker import free_port
from tests.deploy.deployment import CHECKOUT
from tests.docs.documents import block

EVERY = "1s"  # it scrapes, and evaluates the rules
HOST = "127.0.0.1"


def needs_prometheus() -> pytest.MarkDecorator:
    return pytest.mark.skipif(
        shutil.which("prometheus") is None,
        reason="no prometheus in PATH; Debian's package of this name has it",
    )


class Prometheus:
    """The process; `alerts` are those that are pending or firing."""

    def __init__(self, root: Path, service: str, token: str) -> None:
        root.mkdir()
        secret = root / "token"
        secret.write_text(token)
        lines = block(
            "scale.md",
            "",
            "scrape_configs",
            **{"127.0.0.1:8080": service, "/etc/prometheus/retally-token": str(secret)},
        )
        settings = yaml.safe_load(lines)
        settings["global"] = {"scrape_interval": EVERY, "evaluation_interval": EVERY}
        settings["rule_files"] = [str(CHECKOUT / "deploy" / "alerts.yaml")]
        configuration = root / "prometheus.yaml"
        configuration.write_text(yaml.safe_dump(settings))
        port = free_port(HOST)
        with (root / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={configuration}",
                    f"--storage.tsdb.path={root / 'data'}",
                    f"--web.listen-address={HOST}:{port}",
                ],
                stdout=log,
                stderr=log,
            )
        self._client = httpx.Client(base_url=f"http://{HOST}:{port}", trust_env=False)

    def __enter__(self) -> Prometheus:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
        self._process.terminate()
        self._process.wait()

    def alerts(self) -> list[tuple[str, str, str]]:
        """Return each alert as its name, its state, and the job that it names."""
        try:
            answer = self._client.get("/api/v1/alerts").json()
        except (httpx.TransportError, ValueError):  # it is starting
            return []
        found: list[dict[str, Any]] = answer["data"]["alerts"]
        return [
            (each["labels"]["alertname"], each["state"], each["labels"].get("job", ""))
            for each in found
        ]
