"""docker-compose.yml holds to its schema, and to the rules of what one may leave alone."""

from __future__ import annotations

import importlib.util
import json
import re
import socket
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.edge.process.broker import Broker
from schemas.limits import BROKER_MESSAGE_BYTES_MAX
from tests.deploy.deployment import COMPOSE, SETTINGS, composed, dockerfile, settings, variables

SERVICES: dict[str, dict[str, Any]] = composed()["services"]
OURS = {name for name, service in SERVICES.items() if service["image"].startswith("retally:")}
# A file system that can be written needs a reason.
WRITABLE = {"kafka": "Not read_only: its start script writes the configuration"}

each_service = pytest.mark.parametrize("name", SERVICES)
each_of_ours = pytest.mark.parametrize("name", sorted(OURS))


def _published_schema() -> dict[str, Any]:
    found = importlib.util.find_spec("check_jsonschema")
    if found is None or found.origin is None:
        pytest.skip("NOT CHECKED AGAINST THE COMPOSE SCHEMA: pip install check-jsonschema==0.39.0")
    path = Path(found.origin).parent / "builtin_schemas" / "vendor" / "compose-spec.json"
    schema: dict[str, Any] = json.loads(path.read_text())
    return schema


def test_the_file_fits_the_published_schema() -> None:
    import jsonschema_rs

    validator = jsonschema_rs.validator_for(_published_schema())
    two = composed(SERVICE_PORT="8080-8081", POSTGRES_PORT="5433-5434")  # as in docs/deploy.md
    for document in (yaml.safe_load(COMPOSE.read_text()), composed(), two):
        problems = [
            f"{error.instance_path}: {error.message}" for error in validator.iter_errors(document)
        ]
        assert problems == []
    assert not validator.is_valid({"services": {"service": {"image": "a:1", "comand": "b"}}})


# --- variables ------------------------------------------------------------------------------------


def test_every_variable_is_in_the_settings_and_the_other_way_round() -> None:
    assert variables() == set(settings())


def test_variables_have_their_defaults_in_one_place() -> None:
    """`${NAME:-x}` would be a second one, and `$NAME` is not seen by the test above."""
    without = re.sub(r"\$\{[A-Z_]+\}|\$\$", "", COMPOSE.read_text())
    assert "$" not in without


def test_every_setting_is_in_the_document() -> None:
    text = (COMPOSE.parent / "docs" / "deploy.md").read_text()
    table = text.partition("## Settings")[2].partition("## Scale")[0]
    told = [
        cell
        for line in table.splitlines()
        if line.startswith("| `")
        for cell in re.findall(r"`([A-Z_]+)`", line.split("|")[1])
    ]
    assert sorted(told) == sorted(settings())


def test_every_setting_has_a_comment_above_its_group() -> None:
    commented = False
    for line in SETTINGS.read_text().splitlines():
        if line.startswith("#"):
            commented = True
        elif not line:
            commented = False
        elif "=" in line:
            assert commented, line


def test_no_secret_is_in_the_settings() -> None:
    secret = {name for name in settings() if re.search("PASS|SECRET|TOKEN|KEY", name)}
    assert secret == {"SPARK_SECRET", "MONITORING_TOKEN"}
    assert {settings()[name] for name in secret} == {""}, "they come from the environment"


# --- images ---------------------------------------------------------------------------------------


@each_service
def test_images_are_pinned(name: str) -> None:
    _, colon, tag = SERVICES[name]["image"].partition("@")[0].rpartition(":")
    assert colon, "an image without a tag is the newest of the day"
    assert re.match(r"v?\d+\.\d+\.\d+", tag)


def test_all_of_ours_are_one_image() -> None:
    assert {"spark-master", "spark-worker", "service", "demo"} == OURS
    assert len({SERVICES[name]["image"] for name in OURS}) == 1


def test_one_service_builds_it_and_pulls_no_other() -> None:
    """Each further `build` would export the same image again, and leave the first one dangling."""
    assert [name for name, service in SERVICES.items() if "build" in service] == ["service"]


# --- what a container may do ----------------------------------------------------------------------


@each_service
def test_nobody_is_root_and_nobody_becomes_root(name: str) -> None:
    service = SERVICES[name]
    assert service["user"].split(":")[0] not in ("", "0", "root")
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert "privileged" not in service
    assert "cap_add" not in service
    assert "network_mode" not in service


@each_of_ours
def test_the_user_is_the_one_of_the_image(name: str) -> None:
    (user,) = [each.text for each in dockerfile() if each.word == "USER"]
    assert SERVICES[name]["user"] == user


@each_service
def test_file_systems_are_read_only_or_there_is_a_reason(name: str) -> None:
    if name in WRITABLE:
        assert "read_only" not in SERVICES[name]
        assert WRITABLE[name] in COMPOSE.read_text()
    else:
        assert SERVICES[name]["read_only"] is True
        assert SERVICES[name]["tmpfs"]


def test_the_jvm_may_load_what_it_unpacks() -> None:
    """Docker mounts a tmpfs noexec where it is not told otherwise."""
    for name in OURS:
        (scratch,) = SERVICES[name]["tmpfs"]
        path, _, options = scratch.partition(":")
        assert path == "/tmp"
        assert "exec" in options.split(",")


@each_service
def test_ports_are_of_this_machine_only(name: str) -> None:
    for port in SERVICES[name].get("ports", []):
        assert re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port), port


@each_service
def test_memory_has_a_limit(name: str) -> None:
    assert SERVICES[name]["deploy"]["resources"]["limits"]["memory"]


@each_service
def test_logs_are_bounded(name: str) -> None:
    assert set(SERVICES[name]["logging"]["options"]) == {"max-size", "max-file"}


@each_service
def test_containers_come_back(name: str) -> None:
    assert SERVICES[name]["restart"] == "unless-stopped"


# --- health and order -----------------------------------------------------------------------------


@each_service
def test_health_is_checked(name: str) -> None:
    check = SERVICES[name]["healthcheck"]
    assert check["test"][0] == "CMD"
    assert {"interval", "timeout", "retries", "start_period"} <= set(check)


@each_service
def test_who_waits_for_whom_waits_for_health(name: str) -> None:
    for other, wish in SERVICES[name].get("depends_on", {}).items():
        assert wish["condition"] == "service_healthy"
        assert not set(SERVICES[other].get("profiles", ())) - set(
            SERVICES[name].get("profiles", ())
        )


def test_what_may_be_left_out_has_a_profile() -> None:
    profiles = {name: each["profiles"] for name, each in SERVICES.items() if "profiles" in each}
    monitoring = {name: ["monitoring"] for name in ("prometheus", "grafana")}
    assert profiles == {"demo": ["demo"], **monitoring}


# --- data and sizes -------------------------------------------------------------------------------


def _volumes(name: str) -> dict[str, str]:
    """Path to volume; that of a container of its own has no name."""
    found = [volume.rpartition(":") for volume in SERVICES[name].get("volumes", [])]
    return {path: volume for volume, _, path in found}


def test_named_volumes_are_declared_and_used() -> None:
    used = {volume for name in SERVICES for volume in _volumes(name).values() if volume}
    assert used == set(composed()["volumes"])


def test_who_runs_tasks_sees_the_tables_where_the_driver_sees_them() -> None:
    assert _volumes("service") == _volumes("spark-worker") == {"/data": "data", "/cache": ""}
    assert _volumes("spark-master") == {"/cache": "master"}, "it sees no table"


def test_every_hot_state_is_a_container_s_own() -> None:
    for name in ("service", "spark-worker"):
        assert SERVICES[name]["environment"]["RETALLY_CACHE"].startswith("/cache/")
        assert _volumes(name)["/cache"] == ""


def test_as_many_jobs_fit_as_may_run() -> None:
    """Cores are handed out by the master, and one that gets none would wait in silence."""
    given = settings()
    jobs, workers = int(given["JOBS_MAX"]), int(given["WORKERS"])
    assert jobs * int(given["JOB_CORES"]) <= workers * int(given["WORKER_CORES"])
    executors = _megabytes(given["WORKER_MEMORY"]) // _megabytes(given["JOB_MEMORY"])
    assert jobs <= executors, "each job has an executor on every worker"
    assert _megabytes(given["WORKER_MEMORY"]) < _megabytes(given["WORKER_MEMORY_LIMIT"])


def _megabytes(text: str) -> int:
    return int(text[:-1]) * {"m": 1, "g": 1_024}[text[-1]]


def test_the_broker_takes_the_messages_that_jobs_may_send() -> None:
    kafka = SERVICES["kafka"]["environment"]
    assert int(kafka["KAFKA_MESSAGE_MAX_BYTES"]) == BROKER_MESSAGE_BYTES_MAX
    assert kafka["KAFKA_AUTO_CREATE_TOPICS_ENABLE"] == "false"


def test_kafka_is_the_version_that_is_tested() -> None:
    jars = (COMPOSE.parent / "jobs" / "setup" / "ivy.xml").read_text()
    tested = re.search(r'name="kafka_2\.13" rev="([\d.]+)"', jars)
    assert tested is not None
    image, _, digest = SERVICES["kafka"]["image"].partition("@")
    assert image == f"apache/kafka:{tested[1]}"
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", digest)


# --- the broker's health --------------------------------------------------------------------------


@pytest.mark.broker
def test_kafka_is_healthy_if_it_names_a_broker(broker: Broker) -> None:
    assert _probe_kafka(broker.address) == 0


def test_kafka_that_does_not_answer_is_not_healthy() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        assert _probe_kafka(address) != 0, "nobody listens"
        listener.listen()

        def hang_up() -> None:
            listener.accept()[0].close()

        hangs_up = threading.Thread(target=hang_up)
        hangs_up.start()
        assert _probe_kafka(address) != 0, "it hangs up"
        hangs_up.join()


def test_kafka_that_knows_no_broker_is_not_healthy() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        def answer() -> None:
            with listener.accept()[0] as client:
                client.recv(64)
                client.sendall(bytes([0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0]))

        answers = threading.Thread(target=answer)
        answers.start()
        assert _probe_kafka(f"127.0.0.1:{listener.getsockname()[1]}") != 0
        answers.join()


def _probe_kafka(address: str) -> int:
    how, *command = SERVICES["kafka"]["healthcheck"]["test"]
    assert how == "CMD"
    placed = [word.replace("kafka/9092", address.replace(":", "/")) for word in command]
    return subprocess.run(placed, capture_output=True, timeout=30).returncode
