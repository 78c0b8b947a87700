"""No file of tests grows beyond its share without anybody's decision; tests/costs.json is what all
of them cost, and docs/lab/tests.md is made of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.runner import costs
from tests.support.runner.costs import (
    BEGIN,
    CHECKOUT,
    END,
    PAGE,
    PARTS,
    Cost,
    keep_costs,
    median_costs,
    tables,
)

# Processor seconds of a file: a file belongs to one worker, so none may be a long tail.
SHARE = 60
MARK = "pytest.mark.costly("


@pytest.mark.parametrize("part", PARTS)
def test_a_file_keeps_to_its_share_or_says_why_not(part: str) -> None:
    beyond = {
        file: cost.processor
        for file, cost in median_costs(part).items()
        if cost.processor > SHARE
        and (CHECKOUT / file).exists()
        and MARK not in (CHECKOUT / file).read_text(encoding="utf-8")
    }
    assert not beyond, (
        f"these cost more than {SHARE} s of the processor: make them cheaper, split them, or "
        f"say with {MARK}reason) why they must"
    )


def test_the_page_has_what_was_measured() -> None:
    shown = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    assert shown == tables(), "run python -m tests.support.runner.costs"


def test_some_measurements_of_a_file_are_kept_and_their_median_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(costs, "FILE", tmp_path / "costs.json")
    file = Path(__file__).relative_to(CHECKOUT).as_posix()
    for wall in (9.0, 1.0, 2.0, 30.0, 3.0, 4.0):
        keep_costs({"test": {file: Cost(wall, 1.0), "tests/gone.py": Cost(1.0, 1.0)}}, {})
    assert list(json.loads(costs.FILE.read_text())["test"]) == [file]
    assert median_costs("test") == {file: Cost(3.0, 1.0)}


def test_a_file_without_tests_in_a_whole_part_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(costs, "FILE", tmp_path / "costs.json")
    one, other = (f"tests/{name}.py" for name in ("test_costs", "test_arrows"))
    both = {one: Cost(1.0, 1.0), other: Cost(1.0, 1.0)}
    keep_costs({"test": both, "rest": both}, {})
    keep_costs({"test": {one: Cost(1.0, 1.0)}}, {"test": [one]})
    assert (set(median_costs("test")), set(median_costs("rest"))) == ({one}, {one, other})
