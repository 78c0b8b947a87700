"""A spec with views on the command line: mistakes with their places, plans, replay."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jobs.cli.main import main
from jobs.offline.replay import replay
from schemas.spec.file import load_spec

SPEC = """\
name: items
source: {topic: shop.product}
columns: {id: BIGINT, name: STRING, cnt: INT}
minibatch: {size: 2}
views:
  by-name:
    query: SELECT name, SUM(cnt) AS total, MAX(cnt) AS top FROM p GROUP BY name
    sink: {topic: by-name}
  whole:
    query: |
      SELECT COUNT(*) AS n,
             SUM(cnt) AS all_of_it
      FROM p
"""
STEPS = [
    {"op": "+I", "row": {"id": "1", "name": "a", "cnt": "3"}},
    {"op": "+I", "row": {"id": "2", "name": "b", "cnt": "1"}},
    {"op": "-D", "row": {"id": "1", "name": "a", "cnt": "3"}},
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "items.yaml"
    file.write_text(SPEC)
    return file


@pytest.mark.parametrize(
    ("right", "wrong", "problem"),
    [
        ("MAX(cnt)", "MAXX(cnt)", ":7:44: views.by-name.query: unknown function MAXX"),
        ("SUM(cnt) AS all", "SUM(name) AS all", ":12:18: views.whole.query: SUM needs numbers"),
        ("SUM(cnt) AS all_of_it", "MAX(name) AS top", ":10:5: views.whole.query: column `top` is"),
        ("    sink: {topic: by-name}", "    emit: final", ":8:5: views.by-name.emit: belongs to"),
        ("whole:", "Whole:", ":9:3: views.Whole: 'Whole' is not a view name"),
    ],
)
def test_a_mistake_in_a_view_has_its_place(
    right: str, wrong: str, problem: str, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate", str(path)]) == 0
    path.write_text(SPEC.replace(right, wrong))
    assert main(["validate", str(path)]) == 2
    assert problem in capsys.readouterr().err


def test_the_plan_of_each_view_is_printed_or_of_one(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", str(path), "--json"]) == 0
    plans = json.loads(capsys.readouterr().out)["views"]
    assert [plan["job"] for plan in plans.values()] == ["items", "items"]
    assert main(["plan", str(path), "--view", "whole", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == plans["whole"]
    assert main(["plan", str(path), "--view", "other"]) == 1
    assert "known: by-name, whole" in capsys.readouterr().err


def test_a_replay_has_what_a_job_of_each_view_would_have(path: Path) -> None:
    spec = load_spec(path)
    found = list(replay(spec, STEPS))
    for name, view in spec.view_specs.items():
        own = [
            {key: value for key, value in each.items() if key != "view"}
            for each in found
            if each["view"] == name
        ]
        assert own == list(replay(view, STEPS)), name
    assert {each["view"] for each in found} == {"by-name", "whole"}


def test_in_a_replay_with_dedupe_all_views_refuse_what_one_refuses(path: Path) -> None:
    document = load_spec(path).document() | {"primary_key": ["id"], "dedupe": "pk"}
    document["views"]["whole"]["query"] = "SELECT COUNT(*) AS n, SUM(6 / cnt) AS parts FROM p"
    zero = {"op": "+U", "row": {"id": "2", "name": "b", "cnt": "0"}}
    found = list(replay(document, [*STEPS, zero]))
    results = {each["view"]: each["row"] for each in found if each.get("op") in ("+I", "+U")}
    assert results == {
        "by-name": {"name": "b", "total": 1, "top": 1},
        "whole": {"n": 1, "parts": 6},
    }
    reasons = [each["rejected"]["reason"] for each in found if "rejected" in each]
    assert [reason.startswith("view whole: 6 / cnt: division") for reason in reasons] == [True] * 2
