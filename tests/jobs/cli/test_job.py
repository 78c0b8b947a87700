"""A job that has run twice, read in every way the command offers."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from jobs.core.values.change import Op
from jobs.edge.process.job_directory import JobDirectory
from jobs.edge.table.delta_epochs import EpochTable
from jobs.edge.table.file_writer import file_name, write_file
from jobs.edge.table.reading import TableReader
from schemas.table.epoch import EpochRow
from tests.support.command.lab import JOB, Lab, Retally, lines
from tests.support.command.shop import COLUMN_TYPES, COLUMNS, Result, ordered, spec_text
from tests.support.histories.folded_changelog import fold_changelog
from tests.support.topics import committed_records

pytestmark = pytest.mark.spark


def folded(changes: Result) -> Result:
    """Return the results that a consumer of the changelog has in the end."""
    rows = ((Op(change["op"]), change["row"]["name"], change["row"]) for change in changes)
    return ordered(list(fold_changelog({}, rows).values()))


def answer(retally: Retally, *arguments: str) -> Result:
    code, out, err = retally(*arguments, "--json")
    assert code == 0, err
    return lines(out)


def newest_epoch(data: Path) -> int:
    return TableReader.open(JobDirectory(data, JOB)).newest.epoch


# --- reading ----------------------------------------------------------------------------------


def test_results_are_the_query_over_the_live_rows(lab: Lab, retally: Retally) -> None:
    assert ordered(answer(retally, "results", JOB, "--data", str(lab.data))) == lab.truth


def test_the_changelog_folds_to_the_results(lab: Lab, retally: Retally) -> None:
    changes = answer(retally, "changes", JOB, "--data", str(lab.data))
    assert set(changes[0]) == {"op", "epoch", "seq", "row"}
    places = [(change["epoch"], change["seq"]) for change in changes]
    assert places == sorted(set(places))
    assert folded(changes) == lab.truth


def test_since_is_exclusive_and_joins_on(lab: Lab, retally: Retally) -> None:
    everything = answer(retally, "changes", JOB, "--data", str(lab.data))
    later = answer(retally, "changes", JOB, "--data", str(lab.data), "--since", "2")
    assert later == [change for change in everything if change["epoch"] > 2]
    newest = str(newest_epoch(lab.data))
    assert answer(retally, "changes", JOB, "--data", str(lab.data), "--since", newest) == []


def test_results_at_a_time_are_those_of_the_epoch_before_it(lab: Lab, retally: Retally) -> None:
    data = ("--data", str(lab.data), "--json")
    (kept,) = answer(retally, "savepoint", JOB, "--data", str(lab.data), "--list")
    at = ("results", JOB, *data, "--time", kept["committed_at"])
    code, out, _ = retally(*at)
    assert code == 0
    # The moment is cut to milliseconds, so the epoch itself may be the next one.
    found = lines(out)
    by_epoch = [
        lines(retally("results", JOB, *data, "--epoch", str(kept["epoch"] - back))[1])
        for back in (0, 1)
    ]
    assert found in by_epoch
    code, _, err = retally("results", JOB, *data, "--time", "1990-01-01")
    assert code == 1
    assert "no epoch was committed by then; the oldest is of 20" in err


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("pear", "pear"),
        ('"pear"', "pear"),
        ('{"name": "pear"}', "pear"),
        ("null", None),
        ('{"name": null}', None),
        ("", ""),
        ("Grüße", "Grüße"),
        ("[bold]b[/bold]", "[bold]b[/bold]"),
    ],
)
def test_a_key_is_a_value_or_an_object(
    lab: Lab, retally: Retally, key: str, name: str | None
) -> None:
    expected = [row for row in lab.truth if row["name"] == name]
    assert len(expected) == 1
    assert answer(retally, "results", JOB, "--data", str(lab.data), "--key", key) == expected


@pytest.mark.parametrize("key", ['{"nam": "pear"}', "{}", '{"name": 3}', "{nonsense"])
def test_a_key_that_cannot_be_one_is_bad_usage(lab: Lab, retally: Retally, key: str) -> None:
    code, out, err = retally("results", JOB, "--data", str(lab.data), "--key", key)
    assert (code, out) == (2, "")
    assert err.startswith("retally: ")


def test_a_table_shows_values_as_text_and_never_as_markup_or_escapes(
    lab: Lab, retally: Retally
) -> None:
    _, out, _ = retally("results", JOB, "--data", str(lab.data))
    assert "[bold]b[/bold]" in out
    assert "\\u001b[31mred" in out
    assert "\x1b" not in out
    _, out, _ = retally("changes", JOB, "--data", str(lab.data))
    assert "\x1b" not in out


def test_an_unknown_job_names_the_nearest(lab: Lab, retally: Retally) -> None:
    code, _, err = retally("changes", "item", "--data", str(lab.data))
    assert code == 1
    assert "did you mean 'items'?" in err


def test_the_topic_folds_to_the_results(lab: Lab) -> None:
    sink = re.search(r"sink: \{topic: (\S+)\}", lab.spec.read_text())
    assert sink is not None
    assert consumed(lab.command.brokers, sink[1]) == lab.truth


def consumed(brokers: str, topic: str) -> Result:
    """Fold the committed records of the changelog topic."""
    found = [json.loads(record.value) for record in committed_records(brokers, topic)]
    return folded(sorted(found, key=lambda record: (record["epoch"], record["seq"])))


# --- explain ----------------------------------------------------------------------------------


def test_explain_names_the_epochs_and_their_offsets(lab: Lab, retally: Retally) -> None:
    (document,) = answer(retally, "explain", JOB, "pear", "--data", str(lab.data))
    changes = answer(retally, "changes", JOB, "--data", str(lab.data))
    mine = [change for change in changes if change["row"]["name"] == "pear"]
    assert [epoch["epoch"] for epoch in document["epochs"]] == sorted({c["epoch"] for c in mine})
    explained = [change for epoch in document["epochs"] for change in epoch["changes"]]
    assert explained == [{"op": change["op"], "row": change["row"]} for change in mine]
    assert document["history_complete"] is True
    ends: dict[str, int] = {}
    for epoch in document["epochs"]:
        for partition, (start, end) in epoch["offsets"][lab.topic].items():
            assert ends.get(partition, 0) <= start < end
            ends[partition] = end


def test_explain_for_people_shows_the_same(lab: Lab, retally: Retally) -> None:
    code, out, _ = retally("explain", JOB, "pear", "--data", str(lab.data))
    assert code == 0
    assert "for SUM(cnt) AS sum_cnt, MAX(cnt) AS top" in out
    assert f"read from {lab.topic}/0 [0, " in out


# --- savepoints and going back ----------------------------------------------------------------


@pytest.mark.slow
def test_rewind_and_run_again_give_the_truth_in_table_and_topic(
    lab: Lab, copied: Path, tmp_path: Path, retally: Retally, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RETALLY_BROKERS", lab.command.brokers)
    data, newest = ("--data", str(copied)), newest_epoch(copied)
    (done,) = answer(retally, "rewind", JOB, *data, "--to", "first")
    assert (done["epoch"], done["kept"]) == (newest + 1, f"epoch-{newest}")
    assert ordered(answer(retally, "results", JOB, *data)) == lab.kept
    back = answer(retally, "results", JOB, *data, "--epoch", str(newest))
    assert ordered(back) == lab.truth
    assert folded(answer(retally, "changes", JOB, *data)) == lab.kept
    assert len(TableReader.open(JobDirectory(copied, JOB)).part("quarantine")) == 1

    sink = f"again-{lab.topic}"
    spec = tmp_path / "spec.yaml"
    # Its columns in another order, which say the same.
    turned = ", ".join(f"{name}: {kind}" for name, kind in reversed(COLUMN_TYPES.items()))
    spec.write_text(spec_text(JOB, lab.topic, sink).replace(COLUMNS, f"{{{turned}}}"))
    again = lab.command("run", str(spec), *data, "--until-caught-up")
    assert again.returncode == 0, again.stderr
    assert "(1 of them in quarantine)" in again.stderr
    assert again.stderr.splitlines()[-1] == (
        f"1 of them is in quarantine: retally quarantine {JOB} --data {copied}"
    )
    assert "incubator" not in again.stderr
    assert ordered(answer(retally, "results", JOB, *data)) == lab.truth
    assert len(TableReader.open(JobDirectory(copied, JOB)).part("quarantine")) == lab.rejected
    assert consumed(lab.command.brokers, sink) == lab.truth

    audited = lab.command("audit", JOB, *data, "--json")
    assert audited.returncode == 0, audited.stderr
    (report,) = lines(audited.stdout)
    assert (report["verdict"], report["groups"]) == ("equal", len(lab.truth))


def test_rewind_to_an_epoch_that_delta_still_knows(
    lab: Lab, copied: Path, retally: Retally, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RETALLY_BROKERS", lab.command.brokers)
    data, newest = ("--data", str(copied)), newest_epoch(copied)
    before = answer(retally, "results", JOB, *data, "--epoch", "1")
    assert retally("rewind", JOB, *data, "--to", "1")[0] == 0
    assert answer(retally, "results", JOB, *data) == before
    assert retally("rewind", JOB, *data, "--to", f"epoch-{newest}")[0] == 0
    assert ordered(answer(retally, "results", JOB, *data)) == lab.truth
    code, out, _ = retally("rewind", JOB, *data, "--to", str(newest + 2))
    assert (code, out) == (0, f"items is at epoch {newest + 2} already\n")


def test_rewind_to_what_is_not_kept_names_what_is(
    lab: Lab, copied: Path, retally: Retally, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RETALLY_BROKERS", lab.command.brokers)
    table = EpochTable.open(
        copied / "jobs" / JOB / "epochs", TableReader.open(JobDirectory(copied, JOB)).layout
    )
    table.handle.create_checkpoint()  # and then the log before it is cleaned up
    for entry in (copied / "jobs" / JOB / "epochs" / "_delta_log").glob("*.json"):
        if int(entry.stem) < table.version:
            entry.unlink()
    for wanted in ("1", "other"):
        code, out, err = retally("rewind", JOB, "--data", str(copied), "--to", wanted)
        assert (code, out) == (1, "")
        assert "savepoints: first (epoch " in err
    assert ordered(answer(retally, "results", JOB, "--data", str(copied))) == lab.truth


# --- audit ------------------------------------------------------------------------------------


def next_row(row: EpochRow, changelog_rows: int = 0) -> EpochRow:
    return EpochRow(
        epoch=row.epoch + 1,
        uuid="0" * 32,
        generation=row.generation,
        kind="data",
        committed_at=row.committed_at + 1,
        plan=row.plan,
        offsets=row.offsets,
        topics=row.topics,
        counters={"changelog_rows": changelog_rows},
    )


# --- a running job ----------------------------------------------------------------------------


@pytest.mark.slow
def test_a_running_job_refuses_a_second_and_ends_at_sigterm(
    lab: Lab, copied: Path, tmp_path: Path, retally: Retally
) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(spec_text(JOB, lab.topic, None))
    arguments = ("run", str(spec), "--data", str(copied))
    running = lab.command.start(*arguments)
    try:
        seen = until(running.stderr, r"INFO lag \d+ records")
        second = lab.command(*arguments)
        assert second.returncode == 75, second.stderr
        assert f"process {running.pid} on " in second.stderr
        code, _, err = retally(
            "rewind", JOB, "--data", str(copied), "--to", "first", "--brokers", lab.command.brokers
        )
        assert code == 75
        assert "stop it first" in err
        code, _, _ = retally("savepoint", JOB, "--data", str(copied), "--name", "meanwhile")
        assert code == 0
        running.send_signal(signal.SIGTERM)
        assert running.wait(timeout=60) == 0, seen
    finally:
        running.kill()


def until(stream: object, pattern: str) -> str:
    """Read lines until one matches; a thread keeps reading, so that the process never waits."""
    seen: list[str] = []
    matched = threading.Event()

    def read() -> None:
        for line in stream:  # type: ignore[attr-defined]
            seen.append(line)
            if re.search(pattern, line):
                matched.set()

    threading.Thread(target=read, daemon=True).start()
    deadline = time.monotonic() + 120
    while not matched.wait(0.2):
        assert time.monotonic() < deadline, "".join(seen)
    return "".join(seen)


def test_changes_follow_what_is_committed_and_end_quietly(
    lab: Lab, copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONFAULTHANDLER", "1")  # one that does not end says where it is
    newest = newest_epoch(copied)
    following = lab.command.start(
        "changes", JOB, "--data", str(copied), "--since", str(newest - 1), "--follow", "--json"
    )
    try:
        assert following.stdout is not None
        first = json.loads(following.stdout.readline())
        assert first["epoch"] == newest
        commit_a_change(copied, "plum")
        while (line := json.loads(following.stdout.readline()))["epoch"] == newest:
            pass
        assert (line["epoch"], line["op"], line["row"]["name"]) == (newest + 1, "+I", "plum")
        following.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            following.wait(timeout=20)
        following.send_signal(signal.SIGABRT)
        out, err = following.communicate()
        assert (following.returncode, out, err) == (0, "", "")
    finally:
        following.kill()


def commit_a_change(data: Path, name: str) -> None:
    """An epoch with one changelog row, as a running job would commit it."""
    reader = TableReader.open(JobDirectory(data, JOB))
    table = EpochTable.open(reader.root, reader.layout)
    row = next_row(reader.newest, changelog_rows=1)
    changelog = reader.layout.changelog_table(row.epoch, [0], [(Op.INSERT, (name,), (1, 1, 1))])
    added = write_file(reader.root, file_name("changelog", row.epoch, row.uuid, "x"), changelog)
    table.commit_epoch(row, [added])
