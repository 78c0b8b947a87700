"""The curl lines of docs/rest.md."""

from __future__ import annotations

from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[3]
TEXT = (CHECKOUT / "docs" / "rest.md").read_text()
CURLS = [line for line in TEXT.splitlines() if line.startswith("curl ")]
