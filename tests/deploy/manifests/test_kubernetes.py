"""deploy/kubernetes.yaml says what Dockerfile, docker-compose.yml, command line and routes say."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest

from jobs.cli import main as command
from jobs.cli.parser import parse_address
from schemas.spec.connections import load_connections
from service.settings import Settings
from tests.deploy.deployment import CHECKOUT, composed, dockerfile, settings
from tests.support.kubernetes import RENDERED, check_schemas, read_manifests
from tests.support.service.application import create_application

OBJECTS = read_manifests(RENDERED.read_text())
SET = OBJECTS["StatefulSet/retally"]
CONNECTIONS = OBJECTS["ConfigMap/retally-connections"]
POD = SET["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]
EVERY_CONTAINER = [*POD["initContainers"], CONTAINER]


def options() -> Any:
    """The arguments, as the command line reads them."""
    assert CONTAINER["args"][0] == "retally"
    words = [re.sub(r"\$\(\w+\)", "x", each) for each in CONTAINER["args"]]
    return command.build_parser().parse_args(words[1:])


def test_the_manifests_fit_the_published_schemas() -> None:
    check_schemas(OBJECTS)
    unknown = copy.deepcopy(OBJECTS)
    unknown["StatefulSet/retally"]["spec"]["template"]["spec"]["containers"][0]["comand"] = []
    with pytest.raises(AssertionError, match="comand"):
        check_schemas(unknown)


def test_the_image_is_the_one_of_compose_and_its_entry_point_stays() -> None:
    given = settings()
    image = f"{given['RETALLY_IMAGE']}:{given['RETALLY_VERSION']}"
    assert [each["image"] for each in EVERY_CONTAINER] == [image, image]
    assert "command" not in CONTAINER
    entries = [each.words for each in dockerfile() if each.word == "ENTRYPOINT"]
    assert [words[:2] for words in entries] == [["/usr/bin/tini", "--"]]


def test_the_command_is_the_service_as_compose_starts_it() -> None:
    known = command.build_parser().parse_args(composed()["services"]["service"]["command"][1:])
    ours = options()
    assert ours.command == known.command == "serve"
    for name in ("data", "host", "port", "pg_port", "standby"):
        assert getattr(ours, name) == getattr(known, name), name
    assert ours.master == "local[2]"


def test_the_environment_is_that_of_compose_and_secrets_are_secret(tmp_path: Path) -> None:
    given = {each["name"]: each for each in CONTAINER["env"]}
    of_compose = composed()["services"]["service"]["environment"]
    for name in ("RETALLY_CACHE", "SPARK_LOCAL_DIRS"):
        assert given[name]["value"] == of_compose[name]
    passwords = {
        name for name, each in given.items() if "secretKeyRef" in each.get("valueFrom", ())
    }
    assert passwords == {"KAFKA_PASSWORD"}
    pod = {"POD_NAME", "POD_NAMESPACE"}
    assert set(given) == passwords | pod | {"RETALLY_CACHE", "SPARK_LOCAL_DIRS"}
    file = tmp_path / "connections.yaml"
    file.write_text(CONNECTIONS["data"]["connections.yaml"])
    connections = load_connections(file, environment=dict.fromkeys(passwords, "x"))
    assert connections.lookup("default").security == "SASL_SSL"


def test_the_configuration_is_mounted_where_the_command_looks() -> None:
    (file,) = CONNECTIONS["data"]
    (volume,) = (each for each in POD["volumes"] if each["name"] == "connections")
    assert volume["configMap"]["name"] == CONNECTIONS["metadata"]["name"]
    assert options().connections == Path(mounts(CONTAINER)["connections"]) / file


def mounts(container: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["mountPath"] for each in container["volumeMounts"]}


def test_what_may_be_written_is_mounted_and_nothing_else() -> None:
    image_volumes = [each.words for each in dockerfile() if each.word == "VOLUME"]
    found = mounts(CONTAINER)
    assert image_volumes == [[found["data"], found["cache"]]]
    writable = {each["mountPath"] for each in CONTAINER["volumeMounts"] if not each.get("readOnly")}
    assert writable == {"/data", "/cache", "/tmp", "/dev/shm"}
    declared = {each["name"] for each in POD["volumes"]}
    assert {name for each in EVERY_CONTAINER for name in mounts(each)} == declared


@pytest.mark.parametrize("container", EVERY_CONTAINER, ids=lambda each: each["name"])
def test_a_container_is_confined(container: dict[str, Any]) -> None:
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["resources"]["limits"]["memory"]


def test_the_pod_runs_as_the_user_of_the_image() -> None:
    (user,) = {each.text for each in dockerfile() if each.word == "USER"}
    context = POD["securityContext"]
    assert context["runAsNonRoot"] is True
    assert f"{context['runAsUser']}:{context['runAsGroup']}" == user
    assert context["fsGroup"] == context["runAsGroup"]
    assert POD["automountServiceAccountToken"] is False


def test_probes_ask_open_routes_at_the_port_of_the_service(tmp_path: Path) -> None:
    application, _ = create_application(Settings(tmp_path, load_connections(None, "127.0.0.1:9")))
    routes = application.openapi()["paths"]
    ports = {each["name"]: each["containerPort"] for each in CONTAINER["ports"]}
    for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = CONTAINER[kind]["httpGet"]
        assert asked["path"] in routes
        assert "security" not in routes[asked["path"]]["get"]
        assert ports[asked["port"]] == options().port
    assert CONTAINER["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_the_services_find_the_pod_by_its_ports_and_by_its_name() -> None:
    labels = SET["spec"]["template"]["metadata"]["labels"].items()
    selector = SET["spec"]["selector"]["matchLabels"]
    assert selector.items() <= labels
    services = [OBJECTS["Service/retally"], OBJECTS["Service/retally-pods"]]
    assert [each["spec"]["selector"] for each in services] == [selector, selector]
    ports = [(port["port"], port["targetPort"]) for port in services[0]["spec"]["ports"]]
    names = [port["name"] for port in CONTAINER["ports"]]
    assert ports == list(zip((options().port, options().pg_port), names, strict=True))
    assert SET["spec"]["serviceName"] == "retally-pods"


def test_a_standby_names_the_leader_by_the_name_of_its_pod() -> None:
    """Kubernetes puts the variables in; the command line must take what they become."""
    named = {"POD_NAME": "retally-0", "POD_NAMESPACE": "data"}
    index = CONTAINER["args"].index("--advertise") + 1
    address = CONTAINER["args"][index]
    for name, value in named.items():
        address = address.replace(f"$({name})", value)
    assert parse_address(address) == "http://retally-0.retally-pods.data.svc:8080"


def test_all_pods_share_the_tables_which_outlive_the_release() -> None:
    claim = OBJECTS["PersistentVolumeClaim/retally-data"]
    (volume,) = (each for each in POD["volumes"] if each["name"] == "data")
    assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert claim["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


def test_the_first_token_goes_where_the_service_reads_it(tmp_path: Path) -> None:
    from service.paths import ServicePaths

    (first,) = POD["initContainers"]
    assert str(ServicePaths(options().data).tokens) in first["command"][-1]


def test_the_secrets_are_those_of_the_page() -> None:
    page = (CHECKOUT / "docs" / "scale.md").read_text()
    for name in ("retally-tokens", "retally-kafka"):
        assert f"kubectl create secret generic {name} " in page
    (tokens,) = (each for each in POD["volumes"] if each["name"] == "tokens")
    assert tokens["secret"]["secretName"] == "retally-tokens"
    (password,) = (each for each in CONTAINER["env"] if each["name"] == "KAFKA_PASSWORD")
    assert password["valueFrom"]["secretKeyRef"] == {"name": "retally-kafka", "key": "password"}
