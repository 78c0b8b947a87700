"""Replay keeps to its contract: steps in, objects out, without Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from jobs.core.sql.select import QueryError
from jobs.core.time.bundle_clocks import WATERMARK_MAX
from jobs.offline.replay import ReplayError, main, replay
from jobs.offline.steps import StepError
from schemas.spec.file import SpecError, load_spec

END = {"watermark": WATERMARK_MAX}
INSERT = '{"data":[{"k":"a","v":"1"},{"k":"b","v":"2"},{"k":"a","v":"3"}],"type":"INSERT"}'


def spec(**sections: Any) -> dict[str, Any]:
    return {
        "name": "replayed",
        "source": {"topic": "t"},
        "columns": {"k": "STRING", "v": "INT"},
        "query": "SELECT k, SUM(v), MAX(v) AS top, COUNT(*) FROM t GROUP BY k",
        **sections,
    }


def row(op: str, k: str | None, v: object, **place: int) -> dict[str, Any]:
    return {"op": op, "row": {"k": k, "v": v}, **place}


def outputs(steps: Iterable[Mapping[str, Any] | str], **sections: Any) -> list[dict[str, Any]]:
    return list(replay(spec(**sections), steps))


def kinds(found: Iterable[Mapping[str, Any]]) -> list[str]:
    """What came out, in short: the ops, and the other objects by their key and value."""
    return [
        each["op"] if "op" in each else " ".join(f"{key} {each[key]}" for key in each)
        for each in found
        if each != END
    ]


# --- what comes out -------------------------------------------------------------------------


def test_rows_are_named_by_the_select_list_and_typed() -> None:
    found = outputs(
        [row("+I", "a", "0.50")],
        columns={"k": "STRING", "v": "DECIMAL(5, 2)"},
        query="SELECT MAX(v), k, COUNT(*), SUM(v) AS total, AVG(v), MAX(v) AS again FROM t "
        "GROUP BY k",
    )
    assert found == [
        {
            "op": "+I",
            "row": {
                "max_v": "0.50",
                "k": "a",
                "count": 1,
                "total": "0.50",
                "avg_v": "0.500000",
                "again": "0.50",
            },
        },
        {"flushed": 1},
        END,
    ]
    assert list(found[0]["row"]) == ["max_v", "k", "count", "total", "avg_v", "again"]


def test_a_group_column_that_is_not_selected_is_part_of_the_key_all_the_same() -> None:
    found = outputs(
        [row("+I", "a", "1"), row("+I", "b", "1")], query="SELECT SUM(v) AS s FROM t GROUP BY k"
    )
    assert [each["row"] for each in found if "op" in each] == [{"s": 1}, {"s": 1}]


def test_the_end_of_the_input_ends_the_bundle_and_is_the_maximal_watermark() -> None:
    assert outputs([]) == [END]
    assert outputs([row("+I", "a", "1")])[1:] == [{"flushed": 1}, END]


def test_results_come_before_the_watermark_that_ended_their_bundle() -> None:
    found = outputs([row("+I", "a", "1"), {"watermark": 5}, row("+I", "a", "1"), {"watermark": 7}])
    assert kinds(found) == [
        "+I",
        "flushed 1",
        "watermark 5",
        "-U",
        "+U",
        "flushed 1",
        "watermark 7",
    ]


def test_a_watermark_that_is_not_higher_ends_the_bundle_and_goes_no_further() -> None:
    steps = [{"watermark": 5}, row("+I", "a", "1"), {"watermark": 5}, {"watermark": 3}]
    assert kinds(outputs(steps)) == ["watermark 5", "+I", "flushed 1"]


def test_the_maximal_watermark_is_forwarded_once() -> None:
    assert outputs([{"watermark": WATERMARK_MAX}, row("+I", "a", "1")]) == [
        END,
        {"op": "+I", "row": {"k": "a", "sum_v": 1, "top": 1, "count": 1}},
        {"flushed": 1},
    ]


# --- where a bundle ends ----------------------------------------------------------------------


def test_size_counts_rows_and_an_update_is_two() -> None:
    steps = [row("+I", "a", "1"), row("-U", "a", "1"), row("+U", "a", "2"), row("+I", "a", "1")]
    found = outputs(steps, minibatch={"size": 3})
    assert kinds(found) == ["+I", "flushed 3", "-U", "+U", "flushed 1"]


def test_a_message_may_end_up_in_two_bundles() -> None:
    found = outputs([{"message": INSERT}], minibatch={"size": 2})
    assert kinds(found) == ["+I", "+I", "flushed 2", "-U", "+U", "flushed 1"]


def test_the_bundle_that_is_full_ends_at_once() -> None:
    found = outputs([row("+I", "a", "1"), {"flush": True}], minibatch={"size": 1})
    assert kinds(found) == ["+I", "flushed 1"]


def test_flush_ends_a_bundle_and_says_nothing_of_an_empty_one() -> None:
    flush = {"flush": True}
    assert kinds(outputs([flush, row("+I", "a", "1"), flush, flush])) == ["+I", "flushed 1"]


def test_latency_is_an_interval_of_processing_time() -> None:
    """The marker is now - now % latency: 600 ms, then 500 ms, passes the boundary at 1,000."""
    one = row("+I", "a", "1")
    steps = [one, {"clock": 600}, one, {"clock": 399}, one, {"clock": 1}, one, {"clock": 5_000}]
    assert kinds(outputs(steps)) == ["+I", "flushed 3", "-U", "+U", "flushed 1"]


def test_a_bundle_is_in_the_order_of_partition_and_offset() -> None:
    """Partition 0's accumulate stands before partition 1's retraction, whatever arrived first."""

    def kinds_of(steps: list[dict[str, Any]]) -> list[str]:
        return kinds(outputs(steps, early_retractions="drop"))

    steps = [row("-D", "a", "1", partition=1), row("+I", "a", "5", partition=0)]
    assert kinds_of(steps) == ["flushed 2"]
    steps = [row("-D", "a", "1", offset=8), row("+I", "a", "5", offset=7)]
    assert kinds_of(steps) == ["flushed 2"]
    steps = [row("-D", "a", "1"), row("+I", "a", "5")]
    assert kinds_of(steps) == ["+I", "flushed 2"]


# --- the event clock ----------------------------------------------------------------------------

EVENT_CLOCK = {"clock": "event", "interval": "5ms"}


def test_on_the_event_clock_results_wait_for_the_watermark_that_passes_the_boundary() -> None:
    one = row("+I", "a", "1")
    steps = [one, {"watermark": 3}, one, {"clock": 60_000}, {"watermark": 4}, one, {"watermark": 8}]
    assert kinds(outputs(steps, minibatch=EVENT_CLOCK)) == [
        "+I",
        "flushed 2",
        "watermark 4",
        "-U",
        "+U",
        "flushed 1",
        "watermark 8",
    ]


# --- what is refused ----------------------------------------------------------------------------


def test_a_bad_message_is_rejected_whole_with_reason_path_and_place() -> None:
    bad = INSERT.replace('"3"', '"three"')
    found = outputs([{"message": INSERT, "partition": 2}, {"message": bad, "partition": 2}])
    (rejected,) = [each["rejected"] for each in found if "rejected" in each]
    assert rejected == {
        "reason": "'three' is not a valid INT",
        "path": "$.data[2].v",
        "partition": 2,
        "offset": 1,
    }
    assert {"flushed": 3} in found


def test_rejects_come_in_the_order_of_their_positions() -> None:
    steps = [
        {"message": "x", "partition": 1, "offset": 40},
        {"message": "x", "partition": 0, "offset": 7},
        {"message": "x", "partition": 0},
        row("+I", "a", "x", partition=1),
    ]
    found = [each["rejected"] for each in outputs(steps) if "rejected" in each]
    places = [(each["partition"], each["offset"]) for each in found]
    assert places == [(0, 7), (0, 8), (1, 40), (1, 41)]


def test_a_message_with_a_row_that_fails_its_expression_is_rejected_whole() -> None:
    query = "SELECT k, SUM(6 / v) AS s, COUNT(*) AS n FROM t GROUP BY k"
    bad = INSERT.replace('"2"', '"0"')
    found = outputs([{"message": INSERT}, {"message": bad}, row("+I", "a", "2")], query=query)
    (rejected,) = [each["rejected"] for each in found if "rejected" in each]
    assert (rejected["partition"], rejected["offset"]) == (0, 1)
    assert "division by zero" in rejected["reason"]
    assert "k = 'b', v = 0" in rejected["reason"]
    assert {each["row"]["k"]: each["row"]["n"] for each in found if "op" in each} == {
        "a": 3,
        "b": 1,
    }


def test_on_error_fail_stops_at_the_first_bad_message_after_what_came_before() -> None:
    steps = [row("+I", "a", "1"), {"flush": True}, {"message": "x", "partition": 3}]
    found = replay(spec(on_error="fail"), steps)
    assert [next(found), next(found)][1] == {"flushed": 1}
    with pytest.raises(ReplayError, match="partition 3 offset 0: not JSON"):
        next(found)


def test_a_column_that_is_gone_stops_the_job_and_is_named() -> None:
    for step in (
        {"message": '{"data":[{"k":"a"}],"type":"INSERT"}'},
        {"op": "+I", "row": {"k": "a"}},
    ):
        with pytest.raises(ReplayError, match=r"column v:.*on_schema_change"):
            outputs([step])
        found = outputs([step], on_schema_change="continue")
        assert found[0]["row"] == {"k": "a", "sum_v": None, "top": None, "count": 1}


def test_ddl_that_drops_a_column_stops_the_job_or_is_skipped() -> None:
    step = {"message": '{"isDdl":true,"sql":"ALTER TABLE t DROP COLUMN v","type":"ALTER"}'}
    with pytest.raises(ReplayError, match="column v"):
        outputs([step])
    assert outputs([step], on_schema_change="continue") == [END]


def test_a_truncate_stops_the_job_or_is_refused() -> None:
    step = {"message": '{"type":"TRUNCATE","sql":"truncate t"}', "partition": 2, "offset": 7}
    steps = [row("+I", "a", "1"), {"flush": True}, step]
    found = replay(spec(), steps)
    assert [next(found), next(found)][1] == {"flushed": 1}
    with pytest.raises(ReplayError, match=r"^truncate t \(partition 2 offset 7\).*: stop"):
        next(found)
    rejected = outputs(steps, on_truncate="quarantine")[2]["rejected"]
    assert (rejected["path"], rejected["offset"]) == ("$.type", 7)
    assert rejected["reason"].startswith("TRUNCATE removes rows")


def test_a_truncate_with_dedupe_retracts_the_rows_from_before_it() -> None:
    def canal(kind: str, second: int, data: list[dict[str, str]] | None = None) -> str:
        message = {"database": "d", "table": "t", "type": kind, "es": 1_000 * second, "data": data}
        return json.dumps(message)

    steps: list[dict[str, Any]] = [
        {"message": canal("INSERT", 1, [{"k": "a", "v": "1"}])},
        {"message": canal("INSERT", 1, [{"k": "b", "v": "5"}]), "partition": 1},
        {"message": canal("TRUNCATE", 2)},
        {"message": canal("INSERT", 3, [{"k": "a", "v": "7"}])},
        {"flush": True},
        {"message": canal("INSERT", 1, [{"k": "c", "v": "2"}]), "partition": 2},  # read late
    ]
    keyed = {"primary_key": ["k"], "dedupe": "pk", "on_truncate": "apply"}
    source = {"topic": "t", "database": "d", "table": "t"}
    found = outputs(steps, source=source, **keyed)
    live = [(each["row"]["k"], each["row"]["sum_v"]) for each in found if "row" in each]
    assert live == [("a", 7)]
    untimed = [{"message": canal("TRUNCATE", 2).replace('"es"', '"at"')}]
    with pytest.raises(ReplayError, match="has no time"):
        outputs(untimed, source=source, **keyed)


def test_messages_that_carry_no_rows_give_nothing() -> None:
    other = INSERT.replace('"type"', '"table":"other","type"')
    steps: list[dict[str, Any]] = [{"message": None}, {"message": ""}, {"message": other}]
    assert outputs(steps, source={"topic": "t", "table": "mine"}) == [END]


def test_messages_of_another_job_chain() -> None:
    record = '{"op":"+I","row":{"k":"a","v":3},"epoch":1,"seq":0}'
    found = outputs([{"message": record}], source={"topic": "t", "format": "changelog-json"})
    assert found[0]["row"]["sum_v"] == 3


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ({}, "step 1: has none of message, op"),
        ({"flush": True, "clock": 3}, "has .*'clock', 'flush'.* write exactly one of them"),
        ({"flush": False}, "flush is False; write true, or leave it out"),
        ({"clock": -1}, "clock is -1"),
        ({"watermark": "5"}, "watermark is '5'"),
        ({"op": "+X", "row": {}}, r"op is '\+X'; write one of \+I"),
        ({"op": "+I"}, "row is missing"),
        ({"clock": 1, "topic": "t"}, "'topic' does not belong"),
        ({"op": "+I", "row": {}, "topic": "other"}, "topic is 'other', which the job does not"),
        ({"message": {"data": []}}, "message is the raw value"),
        ({"message": "", "partition": "0"}, "partition is '0'"),
        ({"message": "", "offset": True}, "offset is True"),
        ('{"message": ', "step 1: Expecting value"),
        ("[]", "is not an object"),
    ],
)
def test_a_step_that_is_none_is_refused_with_its_number(step: Any, reason: str) -> None:
    with pytest.raises(StepError, match=reason):
        outputs([step])


def test_wrong_specs_and_queries_are_refused_before_any_step() -> None:
    def never() -> Iterable[str]:
        raise AssertionError("a step was asked for")
        yield

    with pytest.raises(SpecError, match=r"minibatch\.size"):
        replay(spec(minibatch={"size": 0}), never())
    with pytest.raises(QueryError, match="line 1"):
        replay(spec(query="SELECT nothing FROM t"), never())


def test_a_bundle_is_written_when_its_latency_has_passed_and_its_groups_live_from_then_on() -> None:
    found = outputs(
        [row("+I", "a", "1"), {"clock": 1_200}, {"clock": 1_799}, {"clock": 1}],
        minibatch={"latency": "1s"},
        state={"ttl": "2s"},
    )
    assert kinds(found) == ["+I", "flushed 1", "-D"]
    late = outputs(
        [row("+I", "a", "1"), {"clock": 10_000}], minibatch={"latency": "1s"}, state={"ttl": "2s"}
    )
    assert kinds(late) == kinds(found)


# --- how it is called ---------------------------------------------------------------------------


def test_a_spec_may_be_a_mapping_a_text_a_file_or_a_spec(tmp_path: Path) -> None:
    text = json.dumps(spec())
    path = tmp_path / "spec.json"
    path.write_text(text, encoding="utf-8")
    step = row("+I", "a", "1")
    forms = [spec(), text, path, load_spec(spec())]
    found = [list(replay(form, [step])) for form in forms]  # type: ignore[arg-type]
    assert all(each == found[0] for each in found)


def test_steps_may_be_lines_or_mappings_and_blank_lines_are_none() -> None:
    step = row("+I", "a", "1")
    line = json.dumps(step)
    assert outputs([line, "", "  \n", line.encode()]) == outputs([step, step])  # type: ignore[list-item]


def test_a_line_of_a_text_ends_with_a_line_feed_only() -> None:
    steps = [row("+I", k, "1") for k in "\u2028\x85"]
    text = "\r\n".join(json.dumps(step, ensure_ascii=False) for step in steps)
    assert outputs(text) == outputs(steps)


def test_numbers_in_decoded_rows_are_taken_exactly() -> None:
    line = '{"op": "+I", "row": {"k": "a", "v": 0.1000000000000000055511151231257827}}'
    columns = {"k": "STRING", "v": "DECIMAL(38, 34)"}
    found = outputs([line], columns=columns)
    assert found[0]["row"]["top"] == "0.1000000000000000055511151231257827"


def test_outputs_come_as_steps_do_and_without_spark() -> None:
    """Outputs come as steps do; and the JVM's libraries are not even imported."""
    code = (
        "import sys\n"
        "from jobs.offline.replay import replay\n"
        "def steps():\n"
        "    yield {'op': '+I', 'row': {'k': 'a', 'v': '1'}}\n"
        "    yield {'flush': True}\n"
        "    raise SystemExit(f'{len(seen)} outputs before the next step, '\n"
        "                     f'pyspark {\"pyspark\" in sys.modules}')\n"
        "seen = []\n"
        f"for output in replay({spec()!r}, steps()):\n"
        "    seen.append(output)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[3]
    )
    assert ended.stderr.strip() == "2 outputs before the next step, pyspark False"


def test_every_type_comes_back() -> None:
    columns = {
        "b": "BOOLEAN",
        "i": "BIGINT",
        "f": "FLOAT",
        "d": "DOUBLE",
        "n": "DECIMAL(38, 10)",
        "s": "STRING",
        "day": "DATE",
        "t": "TIME",
        "at": "TIMESTAMP(6)",
        "z": "TIMESTAMP_LTZ(3)",
        "fine": "TIMESTAMP(9)",
        "octets": "BINARY",
    }
    values = {
        "b": "true",
        "i": "-9223372036854775808",
        "f": "0.1",
        "d": "-1e-300",
        "n": "-1234567890123456789012345678.0123456789",
        "s": "é\u0000",
        "day": "0001-01-01",
        "t": "23:59:59",
        "at": "1969-12-31 23:59:59.999999",
        "z": "2020-05-13 12:38:35.477Z",
        "fine": "2020-05-13 12:38:35.123456789",
        "octets": "\u0000\u00ff",
    }
    names = ", ".join(columns)
    query = f"SELECT {names}, COUNT(*) AS n_rows FROM t WHERE i < 0 OR i IS NULL GROUP BY {names}"
    steps = [{"op": "+I", "row": values}, {"op": "+I", "row": dict.fromkeys(columns)}]
    found = outputs(steps, columns=columns, query=query)
    rows = [each["row"] for each in found if "op" in each]
    typed = {
        **values,
        "b": True,
        "i": -(2**63),
        "f": 0.1,
        "d": -1e-300,
        "n_rows": 1,
        "octets": "AP8=",
    }
    assert rows == [{**dict.fromkeys(columns), "n_rows": 1}, typed]


# --- the command's face -------------------------------------------------------------------------


def write(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_main_prints_json_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec_path = write(tmp_path / "spec.json", json.dumps(spec()))
    steps_path = write(tmp_path / "steps", json.dumps(row("+I", "é", "1")) + "\n\n")
    assert main(spec_path, steps_path) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "é" in lines[0]
    assert [json.loads(line) for line in lines] == outputs([row("+I", "é", "1")])


def test_a_reader_that_closes_the_pipe_is_no_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_to_nobody(_: str) -> None:
        raise BrokenPipeError

    paths = write(tmp_path / "spec", json.dumps(spec())), write(tmp_path / "steps", "")
    monkeypatch.setattr("builtins.print", write_to_nobody)
    with pytest.raises(BrokenPipeError):  # with which the command ends as done
        main(*paths)


def test_main_tells_mistakes_from_failures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = write(tmp_path / "good.json", json.dumps(spec(on_error="fail")))
    wrong = write(tmp_path / "wrong.json", json.dumps(spec(nonsense=1)))
    query = write(tmp_path / "query.json", json.dumps(spec(query="SELECT x FROM t")))
    steps = write(tmp_path / "steps", "{}\n")
    bad = write(tmp_path / "bad", '{"message": "x"}\n')
    deep = write(tmp_path / "deep", "[" * 100_000)
    latin = str(tmp_path / "latin")
    Path(latin).write_bytes('{"clock": 1}\n{"op": "+I", "row": {"k": "é"}}\n'.encode("latin-1"))
    for arguments, code, said in (
        ((wrong, steps), 2, "nonsense"),
        ((query, steps), 2, "line 1"),
        ((good, steps), 2, "step 1"),
        ((good, str(tmp_path / "absent")), 2, "absent: cannot be read: No such file"),
        ((good, bad), 1, "not JSON"),
        ((good, latin), 2, "step 2: 'utf-8' codec can't decode byte 0xe9"),
        ((good, deep), 2, "step 1: maximum recursion depth"),
    ):
        assert main(*arguments) == code
        assert said in capsys.readouterr().err
