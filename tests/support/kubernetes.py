"""Manifests of deploy/chart: rendered by helm, and held against Kubernetes' published schemas."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

CHECKOUT = Path(__file__).resolve().parents[2]
CHART = CHECKOUT / "deploy" / "chart"
RENDERED = CHECKOUT / "deploy" / "kubernetes.yaml"
KUBERNETES = "1.34"  # whose schemas the manifests are held against
Manifest = dict[str, Any]


def find_helm() -> str:
    """Return helm, of PATH or where `go install` puts it; skip the test without it."""
    go = f"{Path.home() / 'go' / 'bin'}"
    found = shutil.which("helm", path=f"{os.environ['PATH']}:{go}")
    if found is None:
        pytest.skip("NOT RENDERED BY HELM: go install helm.sh/helm/v3/cmd/helm@v3.22.0")
    return found


def render(tmp_path: Path, **values: Any) -> str:
    """Return what `helm template retally deploy/chart` prints; raise CalledProcessError."""
    given = tmp_path / "values.yaml"
    given.write_text(yaml.safe_dump(values))
    command = [find_helm(), "template", "retally", str(CHART), "--values", str(given)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def read_manifests(text: str) -> dict[str, Manifest]:
    """Return manifests by `Kind/name`."""
    found = [each for each in yaml.safe_load_all(text) if each is not None]
    named = {f"{each['kind']}/{each['metadata']['name']}": each for each in found}
    assert len(named) == len(found)
    return named


def check_schemas(manifests: dict[str, Manifest]) -> None:
    """Hold manifests against the schemas, without unknown fields."""
    schemas = pytest.importorskip(
        "kubernetes_validate",
        reason="NOT CHECKED AGAINST KUBERNETES' SCHEMAS: pip install kubernetes-validate==1.37.0",
    )
    for name, each in manifests.items():
        if each["apiVersion"] != "monitoring.coreos.com/v1":  # an operator's, not Kubernetes' own
            try:
                schemas.validate(each, KUBERNETES, strict=True)
            except schemas.ValidationError as error:
                raise AssertionError(f"{name}: {error}") from None
