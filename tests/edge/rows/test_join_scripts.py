"""Every join script: the changelog of each epoch is what the script says."""

from __future__ import annotations

import pytest

from tests.support.histories.change_scripts import per_key, shown
from tests.support.histories.join_scripts import JoinScript, join_scripts
from tests.support.histories.joined_query import JoinedQuery


@pytest.mark.parametrize("rows_max", [1, 1_000])
@pytest.mark.parametrize("script", join_scripts(), ids=lambda script: script.path.stem)
def test_the_script_holds(script: JoinScript, rows_max: int) -> None:
    query = JoinedQuery(script.query, script.tables)
    key_columns = len(query.plan.group)
    for changes, expected in script.epochs:
        folded = query.run_epoch(changes, rows_max)
        lines = [shown(op, (*key, *row)) for op, key, row in folded.changelog]
        assert per_key(lines, key_columns) == per_key(expected, key_columns)
