"""Which paths a job may read: those below a directory that the operator names, however written."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.edge.files.allowed import FilesRefused, require_allowed


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    found = tmp_path / "in"
    found.mkdir()
    (found / "link").symlink_to("/etc")
    monkeypatch.setenv("RETALLY_FILES", f"{found}, s3://lake/in/, {tmp_path}/other")
    monkeypatch.chdir(found)  # a relative path would be below it
    return found


@pytest.mark.parametrize(
    "path", ["{in}", "{in}/", "{in}/new/deep", "s3://lake/in", "s3://lake/in/x"]
)
def test_what_the_operator_names_is_allowed(directory: Path, path: str) -> None:
    require_allowed("snapshot.csv", path.replace("{in}", str(directory)))


@pytest.mark.parametrize(
    "path",
    [
        "/etc",
        "{in}/link",
        "{in}/../in2",
        "{in}2",
        "s3://lake/in2",
        "s3a://lake/in",
        "file:/etc",
        "file:///etc",
        "new",
    ],
)
def test_anything_else_is_refused_with_its_key(directory: Path, path: str) -> None:
    with pytest.raises(FilesRefused, match=r"^snapshot\.csv .*RETALLY_FILES="):
        require_allowed("snapshot.csv", path.replace("{in}", str(directory)))


def test_without_a_name_nothing_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RETALLY_FILES", raising=False)
    with pytest.raises(FilesRefused):
        require_allowed("source.files.path", "/")
