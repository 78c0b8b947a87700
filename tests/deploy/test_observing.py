"""deploy/alerts.yaml and deploy/grafana.json ask for metrics, labels and values that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from service.live import table
from service.routes.metrics import PHASES
from service.supervision.register import Actual
from tests.deploy.deployment import CHECKOUT
from tests.docs.documents import rows_of
from tests.support.documents import find_anchors
from tests.support.service.served import Served
from tests.support.service.tables import WatchedTable

ALERTS = yaml.safe_load((CHECKOUT / "deploy" / "alerts.yaml").read_text())
DASHBOARD = json.loads((CHECKOUT / "deploy" / "grafana.json").read_text())
RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
_METRIC = re.compile(r'\b(retally_\w+)(?:\{((?:[^}"]|"[^"]*")*)\})?')
_LABEL = re.compile(r'(\w+)(?:=~|!=|!~|=)"([^"]*)"')
_NAMED = re.compile(r"\b(?:by|on|without|ignoring)\s*\(([^)]*)\)")
_SHOWN = re.compile(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}")
_OF_PROMETHEUS = {"instance", "job", "le"}


def expressions() -> Iterator[tuple[str, str]]:
    """Yield each expression, with the texts that show labels of its results."""
    for rule in RULES:
        yield rule["expr"], " ".join(rule["annotations"].values())
    for panel in PANELS:
        for target in panel["targets"]:
            yield target["expr"], target["legendFormat"]
    for variable in DASHBOARD["templating"]["list"]:
        yield from [(variable["definition"], "")] if "definition" in variable else []


EXPRESSIONS = sorted(set(expressions()))


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The metrics of a real service with a table."""
    with Served.start(tmp_path_factory.mktemp("data")) as served, served.client() as client:
        watched = WatchedTable(served)
        watched.write({"a": (1, 5)})
        watched.table.epoch({("a",): (3,)}, appended_ms=0, phases_ms=dict.fromkeys(PHASES, 5))
        watched.seen()
        client.get("/v1/jobs/items/results/a")
        return client.get("/metrics").text


@pytest.fixture(scope="module")
def known(exported: str) -> dict[str, set[str]]:
    """The labels of each metric; those of a source that is not read here are as of its kind."""
    places = {"retally_partition_": {"job", "topic", "partition", "state"}, "retally_job_": {"job"}}
    names = re.findall(r"^# TYPE (\w+) ", exported, re.MULTILINE)
    found: dict[str, set[str]] = {name: set() for name in names}
    for name, labels in re.findall(r"^(\w+)(?:\{(.*)\})? \S+$", exported, re.MULTILINE):
        family = name if name in found else re.sub("_(bucket|sum|count)$", "", name)
        found[family] |= set(dict(_LABEL.findall(labels)))
    for name, own in found.items():
        if not own:
            own.update(*(more for prefix, more in places.items() if name.startswith(prefix)))
    return found


@pytest.mark.parametrize(("expression", "shown"), EXPRESSIONS)
def test_an_expression_asks_for_what_there_is(
    expression: str, shown: str, known: dict[str, set[str]], exported: str
) -> None:
    values = {
        "state": {*map(str, Actual), "idle", "ahead"},
        "what": {*table._TOTALS.split(), "epochs"},
        "phase": set(PHASES),
        "route": set(re.findall(r'route="([^"]*)"', exported)),
    }
    values["status"] = set(map(str, range(500, 600)))
    found = _METRIC.findall(expression)
    assert found or expression == 'up{job="retally"} == 0'
    of_all = set(_OF_PROMETHEUS)
    for name, labels in found:
        own = known[name.removesuffix("_bucket")]
        of_all |= own
        for label, value in _LABEL.findall(labels):
            assert label in own, f"{name} has no label {label}"
            assert value == "$job" or set(value.split("|")) <= values[label]
    groups = [set(re.split(r",\s*", names)) for names in _NAMED.findall(expression)]
    assert set().union(*groups) <= of_all
    left = (
        set().union(*groups)
        if re.match(r"(?:sum|max|histogram_quantile)\b", expression)
        else of_all
    )
    assert set(_SHOWN.findall(shown)) <= left


def test_rules_have_names_severities_and_words() -> None:
    names = [rule["alert"] for rule in RULES]
    assert len(set(names)) == len(names)
    for rule in RULES:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["summary"].endswith(".")
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "1m"))
        page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        assert anchor in find_anchors(CHECKOUT / page)


def test_every_alert_is_explained() -> None:
    told = rows_of("scale.md", "## Metrics, alerts, dashboard")
    assert told == [rule["alert"] for rule in RULES]


def test_panels_have_places_of_their_own() -> None:
    assert [panel["id"] for panel in PANELS] == list(range(1, len(PANELS) + 1))
    taken: set[tuple[int, int]] = set()
    for panel in PANELS:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells


def test_panels_ask_the_source_that_is_chosen() -> None:
    for panel in PANELS:
        assert panel["datasource"] == {"type": "prometheus", "uid": "${source}"}
        assert panel["title"]
        assert all(target["datasource"] == panel["datasource"] for target in panel["targets"])
    names = [variable["name"] for variable in DASHBOARD["templating"]["list"]]
    assert names == ["source", "job"]


def test_the_files_are_named_where_they_are_explained() -> None:
    page = Path(CHECKOUT / "docs" / "scale.md").read_text()
    assert "deploy/alerts.yaml" in page
    assert "deploy/grafana.json" in page
