"""A job's log: read from its end, by level, in bounded memory; moved aside when it has grown."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.supervision import job_log


def test_a_log_is_read_from_its_end_by_level(tmp_path: Path) -> None:
    log = tmp_path / "log"
    lines = [f"2026-01-31 12:00:00,{n % 1000:03} INFO epoch {n} {'x' * 50}" for n in range(5_000)]
    lines.insert(4_000, "2026-01-31 12:00:01,000 WARNING something")
    lines += ["a line of a JVM", "retally: the topic is gone; make it again"]
    log.write_text("\n".join(lines) + "\n")
    assert job_log.read_tail(tmp_path / "absent", 5) == []
    output = job_log.read_tail(log, 3)
    assert [line.level for line in output] == ["INFO", "INFO", "ERROR"]
    assert output[0].time == "2026-01-31 12:00:00.999"
    assert {line.time for line in output} == {output[0].time}, "a JVM's line has none itself"
    assert len(job_log.read_tail(log, 4_999)) == 4_999
    warned = job_log.read_tail(log, 10, "WARNING")
    assert warned[0].message == "something"
    assert job_log.read_reason(log) == "the topic is gone; make it again"
    job_log.write_mark(log, "revision 2 starts")
    assert job_log.read_reason(log) is None
    (mark,) = job_log.read_tail(log, 1)
    assert (mark.time or "") > "2026-01-31"
    assert mark.message == "==== revision 2 starts"


def test_a_log_of_one_endless_line_is_read_in_bounded_memory(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"first\n" + b"x" * 5_000_000 + b"\nlast\n")
    assert job_log.read_tail(log, 1)[0].message == "last"
    assert job_log.read_tail(log, 3)[-1].message == "last"


def test_a_log_that_has_grown_is_moved_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_log, "JOB_LOG_BYTES_MAX", 100)
    log = tmp_path / "log"
    log.write_text("old\n" * 50)
    with log.open("a") as writer:  # the job's own, which goes on
        job_log.rotate(log)
        writer.write("new\n")
    assert log.read_text() == "new\n"
    assert log.with_name("log.1").read_text() == "old\n" * 50
