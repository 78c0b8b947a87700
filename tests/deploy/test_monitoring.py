"""The Compose profile `monitoring`: what its files name is there, and real programs take it.

Grafana itself is not run: its statements are, as it sends them, with variables and macros put in.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
import yaml

from jobs.edge.process.broker import free_port
from service.serving import create_token
from tests.deploy.deployment import CHECKOUT, composed
from tests.support.prometheus import needs_prometheus
from tests.support.service.postgres import make_url, serve_items
from tests.support.service.served import Served, eventually

COMPOSED = composed()
SERVICES: dict[str, dict[str, Any]] = COMPOSED["services"]
DASHBOARD = json.loads((CHECKOUT / "deploy" / "monitoring" / "results.json").read_text())
METRICS = json.loads((CHECKOUT / "deploy" / "grafana.json").read_text())
SOURCES = yaml.safe_load((CHECKOUT / "deploy" / "monitoring" / "sources.yaml").read_text())
VARIABLES = {each["name"]: each for each in DASHBOARD["templating"]["list"]}
PANELS = {each["title"]: each["targets"][0] for each in DASHBOARD["panels"]}
# What Grafana makes of $__timeFilter(t), $__timeGroupAlias(t, '1h') and $__unixEpochFilter(n).
MACROS = """
SELECT floor(extract(epoch from t) / 3600) * 3600 AS "time", count(*) AS n
FROM (SELECT {kind} '2026-01-01 00:30:00' + i * INTERVAL '1 hour' AS t FROM range(48) AS r(i)) AS w
WHERE t BETWEEN '2026-01-01T12:00:00Z' AND '2026-01-01T15:59:59.999Z'
  AND extract(epoch from t) >= 1767225600 AND extract(epoch from t) <= 1767312000
GROUP BY 1 ORDER BY 1
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    data = tmp_path_factory.mktemp("served")
    with serve_items(data, create_token(data, "root", "admin")) as served:
        served.token = create_token(data, "monitoring", "viewer")
        yield served


@pytest.fixture
def connection(served: Served) -> Iterator[psycopg.Connection]:
    url = make_url(served, password=served.token or "")
    with closing(psycopg.connect(f"{url}?sslmode=disable", autocommit=True)) as connection:
        yield connection


def mounted(name: str) -> dict[str, Path]:
    """Return the files of a container, by their path in it."""
    files = {key: CHECKOUT / each["file"] for key, each in COMPOSED["configs"].items()}
    return {each["target"]: files[each["source"]] for each in SERVICES[name]["configs"]}


def ask(connection: psycopg.Connection, sql: str, **chosen: str) -> list[tuple[Any, ...]]:
    """Return the answer of a statement, in the simple protocol with texts, as in the extended."""
    for name, value in chosen.items():
        sql = sql.replace(f"${name}", value)
    assert "$" not in sql
    simple = psycopg.ClientCursor(connection).execute(sql).fetchall()
    assert simple == connection.execute(sql, prepare=True).fetchall()
    return simple


def test_the_files_are_there_and_each_is_mounted_once() -> None:
    found = [path for name in ("prometheus", "grafana") for path in mounted(name).values()]
    assert sorted(found) == sorted(CHECKOUT / each["file"] for each in COMPOSED["configs"].values())
    assert all(path.is_file() for path in found)


def test_addresses_and_variables_are_those_of_the_services() -> None:
    arguments = SERVICES["service"]["command"]
    ports = {arguments[arguments.index(f"--{each}") + 1] for each in ("port", "pg-port")}
    prometheus, retally = SOURCES["datasources"]
    scraped = yaml.safe_load(mounted("prometheus")["/etc/prometheus/prometheus.yaml"].read_text())
    (scrape,) = scraped["scrape_configs"]
    (found,) = scrape["dns_sd_configs"]
    (host,) = found["names"]
    assert {f"{host}:{found['port']}", retally["url"]} == {f"service:{port}" for port in ports}
    assert set(scraped["rule_files"]) < set(mounted("prometheus"))
    (command,) = SERVICES["prometheus"]["command"]
    assert scrape["authorization"]["credentials_file"] in command
    assert prometheus["url"] == "http://prometheus:9090"
    variable = retally["secureJsonData"]["password"].removeprefix("$")
    for name in ("prometheus", "grafana"):
        assert variable in SERVICES[name]["environment"]
    folder = yaml.safe_load((CHECKOUT / "deploy/monitoring/dashboards.yaml").read_text())
    assert folder["providers"][0]["options"]["path"] == "/etc/grafana/dashboards"
    assert VARIABLES["source"]["query"] == retally["type"]


def test_the_dashboard_reads_any_job(connection: psycopg.Connection) -> None:
    tables = ask(connection, VARIABLES["table"]["query"])
    groups = ask(connection, VARIABLES["group"]["query"], table="items")
    values = ask(connection, VARIABLES["value"]["query"], table="items")
    assert (tables, groups) == ([("items",)], [("name",), ("total",), ("top",)])
    assert values == [("top",), ("total",)]
    chosen = {"table": tables[0][0], "group": groups[0][0], "value": values[1][0]}
    answers = {title: ask(connection, panel["rawSql"], **chosen) for title, panel in PANELS.items()}
    assert answers["Groups"] == [(3,)]
    assert answers["Largest $value"] == [(None, 4.0), ("b", 2.0), ("a", 1.0)]
    assert answers["Results"] == [("a", 1, 1), ("b", 2, 2), (None, 4, 4)]


def test_panels_ask_the_source_that_is_chosen_and_fill_the_page() -> None:
    for panel in DASHBOARD["panels"]:
        assert panel["datasource"]["uid"] == "${source}"
        assert panel["targets"][0]["datasource"] == panel["datasource"]
    places = [each["gridPos"] for each in DASHBOARD["panels"]]
    assert sum(each["w"] for each in places if each["y"] == 0) == 24 == places[-1]["w"]


@pytest.mark.parametrize("kind", ["TIMESTAMP", "TIMESTAMPTZ"])
def test_the_macros_of_grafana_mean_what_they_should(
    connection: psycopg.Connection, kind: str
) -> None:
    found = ask(connection, MACROS.format(kind=kind))
    noon = 1767225600 + 12 * 3600
    assert [(float(at), count) for at, count in found] == [
        (noon + 3600.0 * hour, 1) for hour in range(4)
    ]


@needs_prometheus()
def test_a_real_prometheus_has_the_rules_and_counts_a_job_of_two_services_once(
    served: Served, tmp_path: Path
) -> None:
    port = free_port("127.0.0.1")
    places = {
        "/etc/prometheus": str(tmp_path),
        "/tmp/retally-token": str(tmp_path / "token"),
        "=/prometheus": f"={tmp_path / 'data'}",
    }

    def place(text: str) -> str:
        for there, here in places.items():
            text = text.replace(there, here)
        return text

    for path, file in mounted("prometheus").items():
        Path(place(path)).write_text(place(file.read_text()))
    configuration = tmp_path / "prometheus.yaml"
    settings = yaml.safe_load(configuration.read_text())
    (scrape,) = settings["scrape_configs"]
    del scrape["dns_sd_configs"]  # there is no name server here
    http = served.address.removeprefix("http://")
    addresses = [http, http.replace("127.0.0.1", "localhost")]
    scrape["static_configs"] = [{"targets": addresses}]
    settings["global"]["scrape_interval"] = "1s"
    configuration.write_text(yaml.safe_dump(settings))
    container = SERVICES["prometheus"]
    (command,) = container["command"]
    words = [*container["entrypoint"], f"{place(command)} --web.listen-address=127.0.0.1:{port}"]
    environment = {"PATH": "/usr/bin:/bin", "RETALLY_TOKEN": served.token or ""}
    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen(words, env=environment, stderr=log) as process,
        httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1/", trust_env=False) as client,
    ):
        try:
            up = {"query": 'up{job="retally"}'}
            eventually(lambda: _ask(client, "query", **up) == ["1", "1"], 60)
            known = client.get("rules").json()["data"]["groups"]
            alerts = yaml.safe_load((CHECKOUT / "deploy" / "alerts.yaml").read_text())["groups"]
            assert [rule["name"] for rule in known[0]["rules"]] == [
                rule["alert"] for rule in alerts[0]["rules"]
            ]
            counted = 0
            targets = [target for panel in METRICS["panels"] for target in panel["targets"]]
            for expression in (target["expr"] for target in targets):
                of_all = expression.replace("$job", ".*")
                of_one = expression.replace('"$job"', f'".*",instance="{addresses[0]}"')
                both = [_ask(client, "query", query=each) for each in (of_all, of_one)]
                if "$job" in expression and both[1]:
                    values = [sum(map(float, each)) for each in both]
                    assert values[0] == pytest.approx(values[1], rel=0.3), expression
                    counted += 1
            assert counted >= 6
        finally:
            process.terminate()
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600


def _ask(client: httpx.Client, path: str, **parameters: str) -> list[str]:
    try:
        answer = client.get(path, params=parameters).json()
    except (httpx.TransportError, ValueError):  # it is starting
        return []
    assert answer["status"] == "success", answer
    found = answer["data"]["result"]
    return [each["value"][1] for each in found]
