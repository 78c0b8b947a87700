"""deploy/alerts.yaml and deploy/grafana.json ask for metrics, labels and values that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from schemas.spec.connections import load_connections
from service.live import table
from service.routes import metrics
from service.settings import Settings
from service.supervision.register import Actual
from tests.deploy.deployment import CHECKOUT
from tests.docs.documents import rows_of
from tests.support.documents import find_anchors
from tests.support.service.application import create_application

ALERTS = yaml.safe_load((CHECKOUT / "deploy" / "alerts.yaml").read_text())
DASHBOARD = json.loads((CHECKOUT / "deploy" / "grafana.json").read_text())
RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
_METRIC = re.compile(r"\b(retally_\w+)(?:\{([^}]*)\})?")
_LABEL = re.compile(r'(\w+)=~?"([^"]*)"')


def expressions() -> Iterator[str]:
    yield from (rule["expr"] for rule in RULES)
    yield from (target["expr"] for panel in PANELS for target in panel["targets"])
    for variable in DASHBOARD["templating"]["list"]:
        yield from [variable["definition"]] if "definition" in variable else []


EXPRESSIONS = sorted(set(expressions()))


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The metrics that a service has, whatever it runs."""
    settings = Settings(tmp_path_factory.mktemp("data"), load_connections(None, "127.0.0.1:9"))
    application, _ = create_application(settings)
    text = metrics.format_metrics(application.state.runtime)
    return set(re.findall(r"^# TYPE (\w+) ", text, re.MULTILINE))


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_asks_for_what_there_is(expression: str, known: set[str]) -> None:
    values = {
        "state": {*map(str, Actual), "idle", "ahead"},
        "what": {*table._TOTALS.split(), "epochs"},
    }
    values["status"] = set(map(str, range(500, 600)))
    found = _METRIC.findall(expression)
    assert found or expression == 'up{job="retally"} == 0'
    for name, labels in found:
        assert name.removesuffix("_bucket") in known
        for label, value in _LABEL.findall(labels):
            assert value == "$job" or set(value.split("|")) <= values[label]
    for opening, closing in ("()", "[]", "{}"):
        assert expression.count(opening) == expression.count(closing)


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
