"""Specs with windows: what they must say, and what validate, plan and run say of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.commands.spec_reading import load_job
from schemas.spec_file import SpecError, load_spec

TUMBLE = ", TUMBLE(at, INTERVAL '1' MINUTE)"
SPEC = """\
name: windowed
source: {{topic: t}}
columns: {{k: STRING, v: INT, at: TIMESTAMP(3), ms: BIGINT}}
query: SELECT k, SUM(v) AS total FROM s GROUP BY k{group}
"""
COLUMN = "watermark: {time: {column: at}}\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "spec.yaml"


def refused(path: Path, group: str, rest: str) -> list[str]:
    """The problems of a spec, each from its line on."""
    path.write_text(SPEC.format(group=group) + rest)
    with pytest.raises(SpecError) as caught:
        load_job(path)
    return [line.removeprefix(f"{path}:") for line in str(caught.value).splitlines()]


def test_emit_is_changes_and_windows_do_not_close_where_nothing_is_said() -> None:
    spec = load_spec(SPEC.format(group=""))
    assert (spec.emit, spec.allowed_lateness_ms) == ("changes", None)
    assert spec.document()["emit"] == "changes"
    assert "allowed_lateness" not in spec.document()
    said = SPEC.format(group=TUMBLE) + "emit: final\nallowed_lateness: 90s\n"
    assert load_spec(said).allowed_lateness_ms == 90_000
    assert load_spec(load_spec(said).document()) == load_spec(said)


@pytest.mark.parametrize("rest", ["emit: sometimes", "emit: true", "allowed_lateness: -1s"])
def test_other_values_are_refused(path: Path, rest: str) -> None:
    (problem,) = refused(path, TUMBLE, COLUMN + rest + "\n")
    assert problem.startswith("6:")
