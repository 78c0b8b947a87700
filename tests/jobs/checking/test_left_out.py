"""Which quarantined messages an audit decodes again, and which it leaves out."""

from __future__ import annotations

from typing import Any

from jobs.checking.source_rows import names_left_out
from tests.support.tables.folded_table import a_plan

REJECTS: list[dict[str, Any]] = [
    {"topic": "t", "partition": 0, "offset": offset, "quarantine_code": code}
    for offset, code in enumerate(("message", "expression", "future", None))
]


def test_only_what_a_clock_refused_is_not_decoded_again() -> None:
    assert names_left_out(REJECTS[:3], a_plan()) == {"t/0/2"}


def test_a_row_of_a_version_without_codes_is_left_out() -> None:
    older = {name: value for name, value in REJECTS[0].items() if name != "quarantine_code"}
    assert names_left_out([older, REJECTS[3]], a_plan()) == {"t/0/0", "t/0/3"}
