"""The demo: its shop computes the truth, its results are exact, and no process is left."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections import Counter
from itertools import islice
from pathlib import Path

import psutil
import pytest

from jobs.core.formats.registry import MessageRules
from jobs.core.job.job_plan import plan_of
from jobs.core.plan.tree import Column
from jobs.core.sql.select import parse_query
from jobs.core.values.change import Changes, ColumnGone, Decoded, Rejected, Skipped
from jobs.demo.shop import RARE_GROUPS, Shop, Truth
from jobs.demo.specs import ITEMS, SPECS, WAREHOUSES
from schemas.spec.file import load_spec
from tests.support.histories.joined_query import Change, JoinedQuery
from tests.support.jobs.running_job import produce

CHECKOUT = Path(__file__).resolve().parents[3]
NOW_MS = 1_767_225_600_000
CHANGES = 6_000

COLUMNS = ("id", "name", "cnt")

Row = tuple[int, str, int]


@pytest.fixture(scope="module")
def shop() -> tuple[Shop, list[tuple[int, Decoded]]]:
    """Return a shop after some thousand changes, and its messages as a job decodes them."""
    kinds = load_spec(ITEMS).columns
    columns = tuple(Column(name, kind) for name, kind in kinds.items())
    used = tuple(Column(name, kinds[name]) for name in COLUMNS)
    decoder = MessageRules("canal-json", "shop", "product").decoder(columns, used)
    shop = Shop(seed=3, partitions=4)
    messages = [*shop.insert_stock(NOW_MS), *(shop.change(NOW_MS) for _ in range(CHANGES))]
    return shop, [(partition, decoder.explain(value)) for partition, value in messages]


def test_truth_is_the_query_over_the_rows_that_the_messages_leave(
    shop: tuple[Shop, list[tuple[int, Decoded]]],
) -> None:
    live: Counter[Row] = Counter()
    for _, decoded in shop[1]:
        for weight, row in decoded.changes if isinstance(decoded, Changes) else ():
            live[row] += weight  # type: ignore[index]
    assert set(live.values()) == {0, 1}
    groups: dict[str, list[Row]] = {}
    for row in live.elements():
        groups.setdefault(row[1], []).append(row)
    assert shop[0].compute_truth() == {
        name: {
            "name": name,
            "sum_cnt": sum(row[2] for row in rows),
            "top": max(row[2] for row in rows),
            "n": len(rows),
        }
        for name, rows in groups.items()
    }


def test_every_retraction_of_the_shop_takes_away_a_row_that_is_there(
    shop: tuple[Shop, list[tuple[int, Decoded]]],
) -> None:
    live: set[object] = set()
    for _, decoded in shop[1]:
        for weight, row in decoded.changes if isinstance(decoded, Changes) else ():
            assert (row in live) == (weight < 0)
            live ^= {row}


def test_the_shop_makes_every_kind_of_change(shop: tuple[Shop, list[tuple[int, Decoded]]]) -> None:
    decoded = [each for _, each in shop[1]]
    kinds = Counter(type(each) for each in decoded)
    assert kinds[Skipped] > 0  # DDL
    assert kinds[ColumnGone] == 0  # of a column that no job reads
    assert 0 < kinds[Rejected] < CHANGES / 100
    changes = [each.changes for each in decoded if isinstance(each, Changes)]
    assert {1, 2} <= {len(rows) for rows in changes}
    assert max(len(rows) for rows in changes[20:]) >= 4  # several rows updated in one message
    names = {str(row[1]) for rows in changes for _, row in rows}
    assert names.intersection(RARE_GROUPS)


def test_a_products_changes_stay_in_one_partition(
    shop: tuple[Shop, list[tuple[int, Decoded]]],
) -> None:
    place: dict[object, int] = {}
    for partition, decoded in shop[1]:
        for _, row in decoded.changes if isinstance(decoded, Changes) else ():
            assert place.setdefault(row[0], partition) == partition


def test_equal_seeds_give_equal_shops() -> None:
    def made(seed: int) -> tuple[list[tuple[int, bytes]], Truth]:
        shop = Shop(seed=seed, partitions=4)
        messages = [*shop.insert_stock(NOW_MS), *(shop.change(NOW_MS) for _ in range(500))]
        return messages, shop.compute_truth()

    assert made(7) == made(7)
    assert made(7) != made(8)


def test_the_demos_specs_are_jobs_and_the_second_joins_both_tables() -> None:
    items, warehouses = map(load_spec, SPECS)
    assert parse_query(items.query, items.columns).output == ("name", "sum_cnt", "top", "n")
    assert set(warehouses.sources or ()) == {"product", "storage"}
    assert plan_of(warehouses).output == ("warehouse", "sum_cnt", "top", "n")


def test_the_storage_moves_names_and_its_truth_is_the_join() -> None:
    shop = Shop(seed=3, partitions=1)
    list(shop.insert_stock(NOW_MS))
    stored: dict[str, str] = {}
    kinds: Counter[str] = Counter()
    for _, value in islice(shop.change_storage(), 200):
        message = json.loads(value)
        (row,) = message["data"]
        kinds[message["type"]] += 1
        before = stored.pop(row["name"], None)
        assert (
            before
            == {
                "INSERT": None,
                "UPDATE": (message["old"] or [{}])[0].get("warehouse"),
                "DELETE": row["warehouse"],
            }[message["type"]]
        )
        if message["type"] != "DELETE":
            assert row["warehouse"] != before
            stored[row["name"]] = row["warehouse"]
    assert kinds["UPDATE"] > kinds["INSERT"] > 0 < kinds["DELETE"]
    assert stored == shop.warehouses


def test_the_query_over_both_topics_gives_the_shops_own_join() -> None:
    shop, spec = Shop(seed=3, partitions=4), load_spec(WAREHOUSES)
    messages = {
        "product": [*shop.insert_stock(NOW_MS), *(shop.change(NOW_MS) for _ in range(500))],
        "storage": list(islice(shop.change_storage(), 60)),
    }
    columns = {name: source.columns for name, source in spec.source_specs.items()}
    changes: list[Change] = []
    for table, sent in messages.items():
        declared = tuple(Column(*each) for each in columns[table].items())
        decoder = MessageRules("canal-json", "shop", table).decoder(declared, declared)
        for _, value in sent:
            decoded = decoder.explain(value)
            found = decoded.changes if isinstance(decoded, Changes) else ()
            changes += [(table, weight, row) for weight, row in found]
    query = JoinedQuery(spec.query, columns)
    query.run_epoch(changes)
    names = plan_of(spec).output
    rows: list[dict[str, object]] = [
        dict(zip(names, (*key, *row), strict=True)) for key, row in query.table.items()
    ]
    truth = shop.compute_truth("warehouse")
    assert {str(row["warehouse"]): row for row in rows} == truth
    assert set(truth) <= {"north", "east", "south", "west"} and len(truth) > 1


def test_a_directory_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with _running("--data", str(tmp_path), "--seconds", "1") as demo:
        _, errors = demo.communicate(timeout=60)
    assert demo.returncode == 2
    assert "is not empty" in errors


@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.faults
def test_demo_without_a_terminal_ends_exact_and_leaves_nothing(tmp_path: Path) -> None:
    with _running("--data", str(tmp_path / "data"), "--seconds", "10", "--seed", "5") as demo:
        family = _family_when_it_runs(demo)
        lines = _curl_lines(demo)
        answers = [_tried(line) for line in lines]
        address = lines[0].split()[1].partition("/v1/")[0]
        paused = _tried(f"curl -X POST {address}/v1/jobs/items/pause")  # a visitor, who forgets it
        output, errors = demo.communicate(timeout=250)
    assert demo.returncode == 0, output + errors
    exact = re.search(r"^exact: (\d+) groups equal the source's own table$", output, re.M)
    assert exact is not None, output
    assert int(exact[1]) >= 12
    assert re.search(r"^exact: \d warehouses equal the source's own join$", output, re.M), output
    assert '"desired":"PAUSED"' in paused
    assert "items was paused: it resumes, to be compared" in output
    assert '"row":{"name":"bolt"' in answers[0]
    assert '"multiset"' in answers[1]
    assert "event: progress" in answers[2]
    assert answers[3].startswith("warehouse,sum_cnt,top,n")
    assert '"reason"' in answers[4]
    assert re.search(r"^epoch \d+ · .* rows/s · lag .* in quarantine", output, re.M)
    assert (tmp_path / "data" / "jobs" / "items" / "epochs" / "_delta_log").is_dir()
    assert _left(family) == []


@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.faults
def test_a_demo_whose_visitor_writes_to_its_topic_ends_and_says_that_it_compares_nothing(
    tmp_path: Path,
) -> None:
    # As a corrected message that is resent from the quarantine does.
    with _running("--data", str(tmp_path / "data"), "--seconds", "10") as demo:
        _family_when_it_runs(demo)
        produce(_broker_of(demo), "shop.product", [(1, b"{}")])
        output, errors = demo.communicate(timeout=250)
    assert demo.returncode == 0, output + errors
    assert re.search(r"^not compared: the topics have .* \(1\), for example", output, re.M), output
    assert "WRONG" not in output


def _broker_of(demo: subprocess.Popen[str]) -> str:
    """Return the address of the demo's broker, from the command line of its jobs."""
    for process in psutil.Process(demo.pid).children(recursive=True):
        words = process.cmdline() if process.status() != psutil.STATUS_ZOMBIE else []
        if "--brokers" in words:
            return words[words.index("--brokers") + 1]
    raise AssertionError("no process names the brokers")


@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.faults
@pytest.mark.skipif(sys.platform != "linux", reason="needs the kernel's word of a parent's death")
def test_a_killed_demo_takes_its_processes_with_it(tmp_path: Path) -> None:
    with _running("--data", str(tmp_path / "data")) as demo:
        family = _family_when_it_runs(demo)
        demo.kill()
    assert _left(family) == []


def _running(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "jobs.cli.main", "demo", *arguments],
        cwd=CHECKOUT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _family_when_it_runs(demo: subprocess.Popen[str]) -> list[psutil.Process]:
    """Return all processes of the demo, once every job has an epoch."""
    assert demo.stdout is not None
    said = []
    for line in demo.stdout:
        said.append(line)
        if "every job has an epoch" in line:
            break
    else:
        raise AssertionError("".join(said) + demo.communicate()[1])
    family = psutil.Process(demo.pid).children(recursive=True)
    assert sum(_is_java(process) for process in family) == 3
    return family


def _curl_lines(demo: subprocess.Popen[str]) -> list[str]:
    """Return the command lines that the demo proposes."""
    assert demo.stdout is not None
    found: list[str] = []
    while len(found) < 5:
        line = demo.stdout.readline()
        assert line, found
        if line.strip().startswith("curl "):
            found.append(line.strip())
    return found


def _tried(line: str) -> str:
    """Return the answer of a command line; of a stream what comes within five seconds."""
    words = [*shlex.split(line), "--silent", "--max-time", "5"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode in (0, 28), (line, done)  # 28: the time is over
    return done.stdout


def _is_java(process: psutil.Process) -> bool:
    try:
        return process.name() == "java"
    except psutil.NoSuchProcess:  # it has ended meanwhile
        return False


def _left(family: list[psutil.Process]) -> list[psutil.Process]:
    """Return the processes that still run after some seconds; a JVM needs these to end."""
    _, alive = psutil.wait_procs(family, timeout=20)
    return alive
