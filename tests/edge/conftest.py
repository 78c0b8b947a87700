"""What the tests of the edges share."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.table.object_path import TablePath
from tests.support.tables.folded_table import FoldedTable, insert


@pytest.fixture
def root(tmp_path: Path) -> TablePath:
    """Where a table is."""
    return tmp_path / "epochs"


@pytest.fixture
def made(root: TablePath) -> FoldedTable:
    """A table of one epoch."""
    made = FoldedTable(root)
    made.epoch(insert("a", 1, 2) + insert("b", 3))
    return made
