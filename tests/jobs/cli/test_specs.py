"""validate and plan, and what the command says to mistakes; no broker, no Spark."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.cli.main import main
from jobs.cli.spec_reading import load_job
from schemas.spec.file import SpecError
from tests.support.command.lab import CHECKOUT, Retally
from tests.support.command.shop import spec_text

LIGHT = ("--help", "results --help", "changes --help", "validate --help", "plan --help")


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "spec.yaml"
    path.write_text(spec_text("items", "shop", "items-changes"))
    return path


def refused(tmp_path: Path, text: str) -> list[str]:
    """The problems of a spec, without the file's name."""
    path = tmp_path / "spec.yaml"
    path.write_text(text)
    with pytest.raises(SpecError) as caught:
        load_job(path)
    return [line.removeprefix(str(path)) for line in str(caught.value).splitlines()]


def test_a_good_spec_is_ok(retally: Retally, spec: Path) -> None:
    assert retally("validate", str(spec)) == (0, "ok\n", "")


def test_several_specs_are_checked_and_one_may_be_standard_input(
    retally: Retally, spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(spec.read_text().replace("GROUP BY name", "GROUP BY nam"))
    monkeypatch.setattr("sys.stdin", io.StringIO(bad.read_text()))
    code, out, err = retally("validate", str(spec), str(bad), "-", str(spec))
    assert (code, out) == (2, f"{spec}: ok\n{spec}: ok\n")
    problems = [line for line in err.splitlines() if "unknown column" in line]
    assert [line.split(":4:")[0] for line in problems] == [str(bad), "-"]
    assert err.count("^") == 2, "a line of standard input is shown too"


def test_every_problem_is_named_with_its_place_in_order(retally: Retally, spec: Path) -> None:
    text = spec.read_text().replace("SUM(cnt)", "SUM(cntt)").replace("max_rows", "max_row")
    spec.write_text(text + "state: {ttl: -1s}\n")
    code, out, err = retally("validate", str(spec))
    assert (code, out) == (2, "")
    problems = [line for line in err.splitlines() if line.startswith(str(spec))]
    places = [line.removeprefix(str(spec)).split(": ")[:2] for line in problems]
    assert places == [[":4:25", "query"], [":5:39", "minibatch"], [":7:9", "state.ttl"]]


@pytest.mark.parametrize(
    ("query", "line", "column"),
    [
        ("query: SELECT nam, COUNT(*) FROM t GROUP BY name", 1, 15),
        ('query: "SELECT nam, COUNT(*) FROM t GROUP BY name"', 1, 16),
        ("query: 'SELECT ''a'', nam, COUNT(*) FROM t GROUP BY name'", 1, 23),
        ('query: "SELECT\\n  nam, COUNT(*) FROM t GROUP BY name"', 1, 19),
        ("query: |\n  SELECT\n    nam, COUNT(*)\n  FROM t GROUP BY name", 3, 5),
        ("query: |-\n\n  SELECT\n    nam, COUNT(*)\n  FROM t GROUP BY name", 4, 5),
        ("query: >\n  SELECT COUNT(*),\n  nam\n  FROM t GROUP BY name", 3, 3),
        ("query: SELECT COUNT(*),\n  nam FROM t\n  GROUP BY name", 2, 3),
    ],
)
def test_a_query_error_stands_where_it_stands_in_the_file(
    tmp_path: Path, query: str, line: int, column: int
) -> None:
    head = "name: items\nsource: {topic: shop}\ncolumns: {name: STRING}\n"
    problems = refused(tmp_path, head + query + "\n")
    assert problems[0].startswith(f":{line + 3}:{column}: query: unknown column `nam`"), problems


def test_a_query_in_json_has_places_too(tmp_path: Path) -> None:
    document = {
        "name": "items",
        "source": {"topic": "shop"},
        "columns": {"name": "STRING"},
        "query": "SELECT name,\n COUNT(*), SUM(x) FROM t GROUP BY name",
    }
    text = json.dumps(document, indent=1)
    written = text.splitlines().index(next(x for x in text.splitlines() if "SELECT" in x)) + 1
    column = text.splitlines()[written - 1].index("(x)") + 2
    problems = refused(tmp_path, text)
    assert problems[0].startswith(f":{written}:{column}: query: unknown column `x`"), problems


def test_validate_speaks_json(retally: Retally, spec: Path) -> None:
    code, out, _ = retally("validate", str(spec), "--json")
    assert (code, json.loads(out)["ok"]) == (0, True)
    spec.write_text(spec.read_text().replace("GROUP BY name", "GROUP BY nam"))
    code, out, _ = retally("validate", str(spec), "--json")
    problems = json.loads(out)["problems"]
    assert code == 2
    column = spec.read_text().splitlines()[3].index("nam", -4) + 1
    reason = "unknown column `nam` (try: name)"
    assert problems == [{"path": "query", "reason": reason, "line": 4, "column": column}]


def test_a_marker_is_checked_with_the_query(tmp_path: Path) -> None:
    text = (
        "name: items\nsource: {topic: t}\ncolumns: {k: STRING}\n"
        "watermark:\n  generator: punctuated\n  marker: kk = 'end'\n"
        "query: SELECT z, COUNT(*) FROM t GROUP BY z\n"
    )
    assert [line.split(" (try")[0] for line in refused(tmp_path, text)[:2]] == [
        ":6:11: watermark.marker: unknown column `kk`",
        ":7:15: query: unknown column `z`",
    ]


def test_plan_shows_types_operators_state_and_code(retally: Retally, spec: Path) -> None:
    code, out, _ = retally("plan", str(spec))
    assert code == 0
    assert "GlobalGroupAggregate(groupBy=[name], select=[name, SUM_RETRACT(cnt) AS sum_cnt" in out
    assert "+- LocalGroupAggregate(groupBy=[name, cnt]" in out
    assert "+- WatermarkAssigner(time=[es], strategy=[MAX(es) - 1ms], emitEvery=[200ms]" in out
    assert "MiniBatchAssigner(interval=[100ms], mode=[ProcTime]" in out
    assert "def gather(" in out
    assert "acc_sum_cnt" in out
    assert "decoding: scanned, many messages at once" in out
    assert "folding: in arrays, many groups at once" in out


def test_plan_speaks_json(retally: Retally, spec: Path) -> None:
    code, out, _ = retally("plan", str(spec), "--json")
    plan = json.loads(out)
    assert code == 0
    assert plan["result"][1] == {"name": "sum_cnt", "type": "INT", "is": "SUM(cnt)"}
    state = [(column["part"], column["name"]) for column in plan["state"]]
    assert ("accumulators", "acc_sum_cnt") in state
    assert ("multisets", "value_cnt") in state
    compile(plan["code"], "plan", "exec")
    assert [node["id"] for node in plan["nodes"]][:3] == ["source", "watermark", "minibatch"]
    assert all(line.endswith(")") for line in plan["topology"])
    assert len(plan["topology"]) == len(plan["nodes"])


def test_the_plan_says_what_an_aggregate_keeps_and_reads(retally: Retally, spec: Path) -> None:
    query = (
        "SELECT COUNT(DISTINCT cnt) AS n, STRING_AGG(name, ',' ORDER BY cnt) AS l, SUM(cnt) AS s"
    )
    text = spec.read_text().splitlines()
    text[3] = f"query: {json.dumps(query + ' FROM t')}"
    spec.write_text("\n".join(text))
    _, out, _ = retally("plan", str(spec), "--json")
    plan = json.loads(out)
    assert [each["name"] for each in plan["costs"]] == ["n", "l"]
    assert all(each["cost"].startswith(("a multiset,", "a multiset;")) for each in plan["costs"])
    assert "reads every entry" in plan["costs"][1]["cost"]
    group = next(line for line in plan["topology"] if "GlobalGroupAggregate" in line)
    assert "COUNT_RETRACT(DISTINCT cnt) AS n" in group
    assert "STRING_AGG_RETRACT(name, ',' ORDER BY cnt) AS l" in group
    code, out, _ = retally("plan", str(spec))
    assert code == 0
    assert "reads when it changes" in out


@pytest.mark.parametrize("wrong", ["0s", "30", "soon", "never"])
def test_an_idle_after_of_the_operator_is_a_duration_above_zero(
    retally: Retally, wrong: str
) -> None:
    code, _, err = retally("serve", "--data", "x", "--idle-after", wrong)
    assert code == 2
    assert "--idle-after" in err


@pytest.mark.parametrize(
    ("number", "master", "wanted"),
    [
        ("0", "local[2]", "must be 1 to 16"),
        ("17", "local[2]", "must be 1 to 16"),
        ("2", "spark://host:7077", "--jobs-per-driver needs a local master"),
    ],
)
def test_jobs_share_a_driver_on_one_machine_only(
    number: str, master: str, wanted: str, retally: Retally, tmp_path: Path
) -> None:
    options = ("--jobs-per-driver", number, "--master", master)
    code, _, err = retally("serve", "--data", str(tmp_path), *options)
    assert code == 2
    assert wanted in err


def test_bad_usage_is_2_and_help_is_0(retally: Retally) -> None:
    assert retally("results")[0] == 2
    assert retally("resluts")[0] == 2
    assert retally("results", "items", "--data", "x", "--epoch", "-1")[0] == 2
    code, out, _ = retally("--help")
    assert code == 0
    assert "rewind" in out


def test_a_missing_spec_is_bad_usage_and_a_missing_job_is_a_failure(
    retally: Retally, tmp_path: Path
) -> None:
    code, _, err = retally("validate", str(tmp_path / "no.yaml"))
    assert code == 2
    assert "cannot be read: No such file or directory" in err
    code, _, err = retally("results", "items", "--data", str(tmp_path))
    assert code == 1
    assert "no job has run there; check --data" in err


@pytest.mark.parametrize("command", LIGHT)
def test_light_commands_load_no_spark(command: str) -> None:
    program = (
        "import sys; from jobs.cli.main import main; main(sys.argv[1:]); "
        "import jobs.cli.commands.reading, jobs.cli.commands.specs, jobs.cli.commands.plan, "
        "jobs.cli.commands.run; "
        "print([m for m in ('pyspark', 'kafka', 'fastapi') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *command.split()],
        capture_output=True,
        text=True,
        cwd=CHECKOUT,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_client_of_a_service_loads_nothing_that_runs_jobs() -> None:
    code = (
        "import sys, retally;"
        "print([m for m in ('jobs', 'service', 'msgspec', 'pyarrow') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_an_interrupt_is_quiet(monkeypatch: pytest.MonkeyPatch, spec: Path) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("jobs.cli.commands.plan.run", interrupted)
    assert main(["plan", str(spec)]) == 1


def test_plan_shows_the_joins_of_a_job(retally: Retally, tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(
        "name: revenue\n"
        "sources:\n"
        "  orders: {topic: a, columns: {id: BIGINT, customer: BIGINT}}\n"
        "  customers: {topic: b, columns: {id: BIGINT, region: STRING}}\n"
        "query: SELECT region, COUNT(*) AS n FROM orders o JOIN customers c"
        " ON o.customer = c.id GROUP BY region\n"
    )
    code, out, _ = retally("plan", str(path))
    assert code == 0
    lines = [line.strip() for line in out.splitlines()]
    assert "+- Join(joinType=[InnerJoin], where=[o.customer = c.id], select=[c.region])" in lines
    assert any(line.startswith(":  +- TableSourceScan(") or "topics=[a]" in line for line in lines)
    parts = [line.split()[-1].split(":") for line in lines if "_key_1" in line]
    assert [(side[:7], part) for side, part in parts] == [
        ("join_o_", "accumulators"),
        ("join_c_", "accumulators"),
    ]
    assert retally("validate", str(path))[0] == 0
