"""deploy/chart: what its values change, as helm renders it; test_kubernetes.py has the rest."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from tests.support.kubernetes import (
    CHART,
    RENDERED,
    Manifest,
    check_schemas,
    read_manifests,
    render,
)

DEFAULTS: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
SHARED = {"replicas": 2, "storage": {"accessMode": "ReadWriteMany"}}
EVERYTHING: dict[str, Any] = {
    **SHARED,
    "advertise": "https://$(POD_NAME).example.org",
    "master": "spark://spark-master:7077",
    "environment": {"RETALLY_TABLES": "s3://tables/retally"},
    "secretEnvironment": {"AWS_SECRET_ACCESS_KEY": {"secret": "storage", "key": "secret"}},
    "service": {"type": "LoadBalancer", "annotations": {"example.org/a": "b"}},
    "podDisruptionBudget": {"enabled": True},
    "networkPolicy": {
        "enabled": True,
        "clients": [{"namespaceSelector": {}}],
        "executors": [{"podSelector": {"matchLabels": {"app": "spark-worker"}}}],
    },
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}, "interval": "1m"},
}


def rendered(tmp_path: Path, **values: Any) -> dict[str, Manifest]:
    return read_manifests(render(tmp_path, **values))


def test_the_plain_manifests_are_the_chart_with_its_defaults(tmp_path: Path) -> None:
    """To renew them: helm template retally deploy/chart, below the comment of the file."""
    text = RENDERED.read_text()
    assert text[text.index("---") :] == render(tmp_path)


def test_every_value_is_used_and_fits_the_published_schemas(tmp_path: Path) -> None:
    plain, found = rendered(tmp_path), rendered(tmp_path, **EVERYTHING)
    check_schemas(found)
    assert found.keys() - plain.keys() == {
        "PodDisruptionBudget/retally",
        "NetworkPolicy/retally",
        "ServiceMonitor/retally",
    }
    spec = found["StatefulSet/retally"]["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    given = {each["name"]: each.get("value") for each in container["env"]}
    assert spec["replicas"] == 2
    assert spec["template"]["spec"]["topologySpreadConstraints"]
    assert given["RETALLY_TABLES"] == "s3://tables/retally"
    assert {"AWS_SECRET_ACCESS_KEY", "KAFKA_PASSWORD"} <= given.keys()
    assert {"spark://spark-master:7077", EVERYTHING["advertise"]} <= set(container["args"])
    claim = found["PersistentVolumeClaim/retally-data"]["spec"]
    assert claim["accessModes"] == ["ReadWriteMany"]
    service = found["Service/retally"]
    assert service["spec"]["type"] == "LoadBalancer"
    assert service["spec"]["sessionAffinity"] == "ClientIP"
    assert service["metadata"]["annotations"] == {"example.org/a": "b"}


def test_what_selects_pods_or_services_finds_them(tmp_path: Path) -> None:
    found = rendered(tmp_path, **EVERYTHING)
    pod = found["StatefulSet/retally"]["spec"]["template"]["metadata"]["labels"].items()
    for name in ("PodDisruptionBudget/retally", "NetworkPolicy/retally"):
        spec = found[name]["spec"]
        assert spec.get("selector", spec.get("podSelector"))["matchLabels"].items() <= pod
    monitor = found["ServiceMonitor/retally"]
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    services = [
        name
        for name, each in found.items()
        if each["kind"] == "Service" and wanted <= each["metadata"]["labels"].items()
    ]
    assert services == ["Service/retally"], "pods of two services would be scraped twice"
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    # deploy/alerts.yaml has up{job="retally"}, and names jobs by their label `job`.
    assert dict(pod)[monitor["spec"]["jobLabel"]] == "retally"
    (endpoint,) = monitor["spec"]["endpoints"]
    assert (endpoint["path"], endpoint["honorLabels"]) == ("/metrics", True)


def test_a_policy_opens_the_ports_to_clients_and_all_ports_to_executors(tmp_path: Path) -> None:
    policy = rendered(tmp_path, **EVERYTHING)["NetworkPolicy/retally"]["spec"]
    clients, executors = policy["ingress"]
    assert [each["port"] for each in clients["ports"]] == ["http", "postgres"]
    assert clients["from"] == [{"namespaceSelector": {}}]
    assert executors == {"from": EVERYTHING["networkPolicy"]["executors"]}
    anybody = rendered(tmp_path, networkPolicy={"enabled": True})["NetworkPolicy/retally"]["spec"]
    assert anybody["ingress"] == [{"ports": clients["ports"]}]


def test_other_connections_are_another_pod(tmp_path: Path) -> None:
    def read_checksum(**values: Any) -> str:
        pod = rendered(tmp_path, **values)["StatefulSet/retally"]["spec"]["template"]
        return str(pod["metadata"]["annotations"]["checksum/connections"])

    other = {"default": {"bootstrap": "elsewhere:9092"}}
    assert read_checksum() == read_checksum(runningMax=3) != read_checksum(connections=other)


WRONG = [
    {"replicas": 2},
    {"replicas": 0},
    {"replica": 1},
    {"master": "yarn"},
    {"storage": {"size": "fifty"}},
    {"secretEnvironment": {"A": {"secret": "b"}}},
    {"secretEnvironment": {"A-B": {"secret": "b", "key": "c"}}},
    {"resources": {"limits": {"memory": None}}},
    {"connections": {"default": {"bootstrap": None}}},
    {"networkPolicy": {"clients": [{}]}},
    {"advertise": "retally.example.org"},
]


def over_defaults(values: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """Return values as helm merges them; None takes a key away."""
    merged = dict(defaults)
    for name, value in values.items():
        known = defaults.get(name)
        both = isinstance(value, dict) and isinstance(known, dict)
        merged[name] = over_defaults(value, known) if both else value  # type: ignore[arg-type]
    return {name: value for name, value in merged.items() if value is not None}


@pytest.mark.parametrize("values", WRONG, ids=str)
def test_wrong_values_are_refused_by_their_schema(values: dict[str, Any]) -> None:
    schema = (CHART / "values.schema.json").read_text()
    validator = jsonschema_rs.Draft7Validator(schema)
    assert validator.is_valid(DEFAULTS)
    assert validator.is_valid(over_defaults(EVERYTHING, DEFAULTS))
    assert not validator.is_valid(over_defaults(values, DEFAULTS))


@pytest.mark.parametrize("values", [{"replicas": 2}, {"replica": 1}], ids=str)
def test_helm_refuses_them_too(tmp_path: Path, values: dict[str, Any]) -> None:
    with pytest.raises(subprocess.CalledProcessError) as refused:
        render(tmp_path, **values)
    assert re.search(f"{next(iter(values))}|storage", refused.value.stderr)
