"""The log of a source directory: one order of the files, offsets that stay, files that do not."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from jobs.edge.files import lines as file_lines
from jobs.edge.files.allowed import FilesRefused
from jobs.edge.files.lines import find_pieces, open_file
from jobs.edge.files.log import FileLog, FilesChanged, open_file_logs
from jobs.edge.kafka.offset_ranges import OffsetRange
from jobs.edge.kafka.range_consumer import RangeUnreadable
from jobs.edge.tasks.file_ranges import locate_line, read_file_ranges
from jobs.running.file_reading import require_same_lines
from schemas.spec.file import SpecError, load_spec
from schemas.spec.source import Files
from schemas.table.object_path import ObjectPath
from tests.support.epoch_rows import epoch_row
from tests.support.object_storage import BUCKET, Storage


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RETALLY_FILES", str(tmp_path))
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


def write(path: Path, content: bytes, second: int) -> None:
    path.write_bytes(content)
    os.utime(path, (second, second))


def open_log(directory: Path, *, header: bool = False) -> FileLog:
    log = FileLog.open(directory.parent / "data", Files(path=str(directory), header=header))
    log.notice()
    return log


def read(log: FileLog, start: int, end: int) -> list[bytes | None]:
    planned = OffsetRange(log.files.path, 0, start, end)
    pieces = list(log.find_pieces(start, end))
    return [record.value for _, some in read_file_ranges(pieces, [planned]) for record in some]


def rest(log: FileLog) -> list[bytes | None]:
    return read(log, 0, log.end)


def test_files_come_by_time_then_name_and_later_ones_after_them(directory: Path) -> None:
    write(directory / "b", b"3\n", 20)
    write(directory / "c", b"1\n", 10)
    write(directory / "a", b"2", 20)
    for hidden in (".part", "_SUCCESS"):
        write(directory / hidden, b"0\n", 1)
    log = open_log(directory)
    assert rest(log) == [b"1", b"2", b"3"]
    write(directory / "older", b"4\n", 5)
    assert rest(open_log(directory)) == [b"1", b"2", b"3", b"4"]
    log.notice()
    assert (rest(log), log.id) == ([b"1", b"2", b"3", b"4"], open_log(directory).id)


def test_a_line_that_a_kill_has_cut_off_is_logged_again(directory: Path) -> None:
    write(directory / "a", b"1\n2\n", 1)
    before = open_log(directory)
    write(directory / "b", b"3\n", 2)
    whole = open_log(directory)
    text = whole.place.read_bytes()
    for cut in range(0, len(text), 7):
        whole.place.write_bytes(text[:cut])
        log = open_log(directory)
        assert rest(log) == [b"1", b"2", b"3"]
        assert (log.id == before.id) == (cut > text.index(b"\n"))


@pytest.mark.parametrize("seed", range(20))
def test_every_range_of_every_file_has_its_own_lines(
    seed: int, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    block = rng.choice([3, 7, 16, 64])
    monkeypatch.setattr(file_lines, "FILE_PIECE_BYTES", block)
    monkeypatch.setattr(file_lines, "READ_BYTES_MAX", 2 * block)
    expected: list[bytes] = []
    header = rng.random() < 0.5
    for number in range(rng.randint(1, 6)):
        texts = [
            bytes(rng.choices(b"ab,\xc3\xa9", k=rng.choice([0, 1, 2, block, 5 * block])))
            for _ in range(rng.randint(0, 12))
        ]
        last = b"\n" if rng.random() < 0.7 else b""
        written = b"\n".join(texts) + last if texts else b""
        rows = written.split(b"\n")
        rows = rows[:-1] if written.endswith(b"\n") or not written else rows
        expected += rows[header:]
        write(directory / f"f{number}", written, number)
    log = open_log(directory, header=header)
    assert log.end == len(expected)
    for _ in range(20):
        start = rng.randint(0, log.end)
        end = rng.randint(start, log.end)
        found = read(log, start, end)
        assert len(found) == end - start
        for line, known in zip(found, expected[start:end], strict=True):
            # Of a line that is longer than a piece only the beginning is read.
            assert (line or b"") == known or (len(known) > block and known.startswith(line or b"-"))


def test_a_line_is_known_by_file_and_number_and_has_the_time_of_its_file(directory: Path) -> None:
    write(directory / "a.csv", b"id\n1\n2\n", 7)
    write(directory / "b.csv", b"id\r\n3\r\n\r\n4\r\n", 9)
    log = open_log(directory, header=True)
    pieces = list(log.find_pieces(0, log.end))
    planned = OffsetRange(log.files.path, 0, 0, log.end)
    records = [each for _, some in read_file_ranges(pieces, [planned]) for each in some]
    assert [each.value for each in records] == [b"1", b"2", b"3", None, b"4"]
    assert [each.timestamp_ms for each in records] == [7_000] * 2 + [9_000] * 3
    assert locate_line(pieces, str(directory), 4) == "b.csv line 4: "
    assert log.offset_at(7_001) == 2
    assert log.offset_at(9_001) == log.end


def test_a_logged_file_may_go_and_come_back_but_not_change(directory: Path) -> None:
    path, kept = directory / "a", directory.parent / "kept"
    write(path, b"1\n2\n", 1)
    shutil.copy(path, kept)
    log = open_log(directory)
    path.unlink()
    log.notice()
    with pytest.raises(RangeUnreadable, match="is gone"):
        read(log, 0, 1)
    write(path, kept.read_bytes(), 500)  # delivered a second time
    log.notice()
    assert rest(log) == [b"1", b"2"]
    write(path, b"1\n3\n", 500)  # neither its time nor its size says so
    log.notice()
    with pytest.raises(RangeUnreadable, match="has changed"):
        rest(log)
    write(path, b"1\n2\n3\n", 2)
    with pytest.raises(FilesChanged, match="has changed"):
        log.notice()


def test_objects_of_a_prefix_are_files_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prefix = ObjectPath(f"{BUCKET}/in")
    with Storage() as storage:
        for name, value in storage.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("RETALLY_FILES", f"s3://{BUCKET}/in/")
        for name, content in (("a b", b"1\n22\n"), ("_c", b"0\n"), ("d", b"3" * 5_000_000)):
            with (prefix / name).sink() as sink:
                sink.write(content)
        log = FileLog.open(tmp_path, Files(path=str(prefix)))
        assert log.notice()
        found = rest(log)
        assert sorted(map(len, filter(None, found))) == [1, 2, 5_000_000]
        with (prefix / "later").sink() as sink:
            sink.write(b"4")
        log.notice()
        assert rest(log) == [*found, b"4"]
        with (prefix / "a b").sink() as sink:
            sink.write(b"1\n234\n")  # a time of S3 has whole seconds
        with pytest.raises(FilesChanged, match="has changed"):
            log.notice()


def test_a_name_that_no_log_can_have_is_named(directory: Path) -> None:
    Path(os.fsdecode(os.fsencode(directory) + b"/caf\xe9")).write_text("x")
    with pytest.raises(FilesChanged, match=r"caf.udce9.* rename the file"):
        FileLog.open(directory.parent / "data", Files(path=str(directory))).notice()


def test_a_log_that_is_replaced_under_a_job_is_not_written(directory: Path) -> None:
    write(directory / "a", b"x\n" * 10, 1)
    log = FileLog.open(directory.parent / "data", Files(path=str(directory)))
    log.notice()
    log.place.write_bytes(b"")
    write(directory / "b", b"y\n", 2)
    with pytest.raises(FilesChanged, match="was replaced"):
        log.notice()
    assert log.place.read_bytes() == b""


def test_an_older_log_with_other_lines_at_the_offsets_stops_a_job(directory: Path) -> None:
    data = directory.parent / "data"
    write(directory / "a", b"1\n" * 10, 1)
    log = FileLog.open(data, Files(path=str(directory)))
    log.notice()
    older = log.place.read_bytes()
    write(directory / "b", b"2\n" * 10, 2)
    log.notice()
    path = str(directory)
    counters = {"files": {path: log.locate(20)}}
    newest = epoch_row(5, offsets={path: {"0": 20}}, counters=counters)
    require_same_lines({path: log}, newest)
    log.place.write_bytes(older)
    (directory / "b").unlink()
    write(directory / "c", b"3\n" * 15, 3)
    again = FileLog.open(data, Files(path=str(directory)))
    again.notice()
    with pytest.raises(FilesChanged, match=r"epoch 5 has read .* to b line 10, which is another"):
        require_same_lines({path: again}, newest)


def test_only_as_many_lines_are_counted_as_a_bundle_takes(directory: Path) -> None:
    for number in range(5):
        write(directory / f"f{number}", b"x\n" * 10, number)
    log = FileLog.open(directory.parent / "data", Files(path=str(directory)))
    assert not log.notice(15)
    assert log.end == 20
    assert not log.notice(1)
    assert log.notice(100)
    assert log.end == 50


def test_pieces_are_of_whole_lines_and_of_bounded_size(tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(b"".join(b"%d,%s\n" % (n, b"x" * (n % 300)) for n in range(120_000)))
    with open_file(path) as opened:
        pieces = find_pieces(opened, 0)
    assert sum(each.size for each in pieces) == path.stat().st_size
    assert sum(each.lines for each in pieces) == 120_000
    assert len(pieces) > 2
    assert max(each.size for each in pieces) <= file_lines.READ_BYTES_MAX


def _spec(**source: object) -> dict[str, object]:
    return {
        "name": "files",
        "source": {"format": "json", **source},
        "columns": {"id": "INT"},
        "query": "SELECT id, COUNT(*) AS n FROM t GROUP BY id",
    }


@pytest.mark.parametrize(
    "wrong",
    [
        {"files": {"path": "in"}},
        {"files": {"path": "/data/../etc"}},
        {"files": {"path": "s3://user:key@bucket/in"}},
        {"files": {"path": "/in"}, "topic": "also"},
        {"files": {"path": "/in"}, "format": "upsert-json"},
        {"files": {"path": "/in"}, "snapshot": {"csv": "/past"}},
        {"files": {"path": "/in"}, "format": "avro", "schema_registry": "default"},
    ],
)
def test_a_spec_that_cannot_read_its_files_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(SpecError):
        load_spec(_spec(**wrong))


def test_a_directory_is_read_only_where_the_operator_allows_it(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RETALLY_FILES", f"/elsewhere, {directory}")
    spec = load_spec(_spec(files={"path": f"{directory}/"}))
    assert spec.topics == (str(directory),)
    assert load_spec(spec.document()) == spec
    assert list(_logs(directory, spec)) == [str(directory)]
    link = directory.parent / "in" / "link"
    link.symlink_to("/etc")
    for path in ("/etc", str(link), f"{directory}er"):
        with pytest.raises(FilesRefused, match="RETALLY_FILES"):
            _logs(directory, load_spec(_spec(files={"path": path})))
    monkeypatch.delenv("RETALLY_FILES")
    with pytest.raises(FilesRefused):
        _logs(directory, spec)


def _logs(directory: Path, spec: object) -> Iterable[str]:
    return open_file_logs(directory.parent / "data", spec)  # type: ignore[arg-type]
