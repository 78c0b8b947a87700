"""retally explain: why MAX decreased, in the terminal too."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from jobs.cli.explanation import print_explanation
from jobs.cli.main import main
from jobs.reading.parts import MULTISETS
from schemas.documents.explanation import Explained, JoinedRow, SideRow
from schemas.types.sql_types import INT, STRING
from tests.support.tables.written_table import WrittenTable

QUERY = "SELECT name, SUM(v) AS total, MAX(v) AS top FROM t GROUP BY name"
WENT = "top decreased from 9 to 7 in epoch 2: the value 9 was retracted"


def test_why_a_max_went_down_is_said_as_long_as_it_is_remembered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = WrittenTable(tmp_path, QUERY, {"name": STRING, "v": INT})
    table.epoch({("a",): (7, 9, 9, 5)})
    table.epoch({("a",): (7, 5)})
    arguments = ["explain", "items", "a", "--data", str(tmp_path)]
    assert main(arguments) == 0
    once = f"{WENT} twice (read from t/0 [10, 20)); 7 is now the greatest of 2."
    assert once in capsys.readouterr().out
    table.epoch({("a",): (7, 5), ("b",): (1,)})
    table.merge(MULTISETS, 1)
    assert main([*arguments, "--json"]) == 0
    (why,) = json.loads(capsys.readouterr().out)["why"]
    assert why.startswith(f"{WENT}, how often is no longer known (read from t/0 [10, 20))")


def test_values_are_listed_from_the_greatest_on_as_in_the_console(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = WrittenTable(tmp_path, QUERY, {"name": STRING, "v": INT})
    table.epoch({("a",): tuple(range(10, 60))})
    assert main(["explain", "items", "a", "--data", str(tmp_path)]) == 0
    shown = [int(found) for found in re.findall(r"^ +(\d+) +1 *$", capsys.readouterr().out, re.M)]
    assert shown == [*range(59, 49, -1), *range(19, 9, -1)]


def test_joined_rows_are_printed_with_the_offsets_of_each_side(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sides = [
        SideRow({"o.amount": 5}, 2, {"shop.orders": {"0": [7, 9]}}),
        SideRow({"c.region": "north"}, 1, {"crm.customers": {"0": [0, 3]}}),
    ]
    explained = Explained(
        job="revenue",
        epoch=2,
        moved=None,
        group={"region": "north"},
        row={"region": "north", "s": 10},
        row_count=3,
        changed=2,
        withheld=False,
        hidden=False,
        closed=False,
        late=[],
        written_ms=None,
        arguments=[],
        epochs=[],
        history_complete=True,
        joined=[JoinedRow(2, sides)],
        joined_complete=False,
    )
    print_explanation("revenue", explained)
    printed = capsys.readouterr().out
    assert "joined rows, not all of them" in printed
    assert '   2 x {"o.amount": 5} (epoch 2, read from shop.orders/0 [7, 9))' in printed
    assert '{"c.region": "north"} (epoch 1, read from crm.customers/0 [0, 3))' in printed
