"""What the tests of the edges share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.edge.folded_table import FoldedTable, insert


@pytest.fixture
def made(tmp_path: Path) -> FoldedTable:
    """A table of one epoch."""
    made = FoldedTable(tmp_path / "epochs")
    made.epoch(insert("a", 1, 2) + insert("b", 3))
    return made
