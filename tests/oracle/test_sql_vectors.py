"""GROUP BY queries against the changelogs that Flink 2.2.1 itself gave, in replays and in jobs.

Three sources. The vectors beside the checkout (skipped, loudly, where there are none): every one
whose query is in our grammar must give the same rows per key; the ones where we decide otherwise
are in OVERRULED, each with its reason. Then what Flink's own tests state. Then, as vectors of our
own, the bugs that Flink and others shipped in this very computation.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jobs.core.sql.select import QueryError
from jobs.offline.replay import replay
from schemas.spec.file import SpecError
from tests.support.histories import flink_notation as flink
from tests.support.jobs.epochs_by_hand import ByHand

VECTORS = Path(__file__).parents[3] / "shared" / "oracle" / "sql_vectors.json"
MISSING = "NOT CHECKED AGAINST THE OUTSIDE VECTORS: sql_vectors.json is not beside this checkout"

ALL_FIVE = "COUNT(*) AS c, COUNT(v) AS cv, SUM(v) AS s, AVG(v) AS av, MAX(v) AS mx, MIN(v) AS mn"
FIT = "a SUM that does not fit its type is NULL, and right again when it fits again"
LAST = "two-phase cuts its bundles elsewhere; only the final rows are the same"
NINES = "9" * 35

# id -> (what we give instead, why). None: the same final rows, by other steps.
OVERRULED: dict[str, tuple[list[str] | None, str]] = {
    "S06-int-overflow": (
        [
            "+I[a, 2147483647, 2147483647, 2147483647]",
            "-U[a, 2147483647, 2147483647, 2147483647]",
            "+U[a, null, 2147483648, 1073741824]",
            "-U[a, null, 2147483648, 1073741824]",
            "+U[a, 2147483647, 2147483647, 2147483647]",
        ],
        FIT,
    ),
    "S07-tinyint-overflow-bigint-overflow": (
        [
            "+I[a, 100, 100, 9223372036854775807, 9223372036854775807]",
            "-U[a, 100, 100, 9223372036854775807, 9223372036854775807]",
            "+U[a, null, 100, null, 4611686018427387904]",
            "-U[a, null, 100, null, 4611686018427387904]",
            "+U[a, 100, 100, 9223372036854775807, 9223372036854775807]",
        ],
        FIT,
    ),
    "S08-decimal-overflow-append": (
        [f"+I[a, {NINES}.999, null]", f"-U[a, {NINES}.999, null]", "+U[a, null, null]"],
        FIT + "; it does not start again from NULL",
    ),
    "S09-decimal-overflow-retract": (
        [
            f"+I[a, {NINES}.999, null]",
            f"-U[a, {NINES}.999, null]",
            "+U[a, null, null]",
            "-U[a, null, null]",
            f"+U[a, {NINES}.999, null]",
            f"-U[a, {NINES}.999, null]",
            "+U[a, null, null]",
        ],
        FIT,
    ),
    "S15-listagg-first-last": (
        [
            "+I[a, x, x, 1]",
            "-U[a, x, x, 1]",
            "+U[a, x,y, x#y, 2]",
            "-U[a, x,y, x#y, 2]",
            "+U[a, x,x,y, x#x#y, 3]",
            "-U[a, x,x,y, x#x#y, 3]",
            "+U[a, x,y, x#y, 2]",
            "-U[a, x,y, x#y, 2]",
            "+U[a, x,y, x#y, 3]",
            "-U[a, x,y, x#y, 3]",
            "+U[a, x,y, x#y, 2]",
            "-U[a, x,y, x#y, 2]",
            "+U[a, x,y, x#y, 3]",
            "-U[a, x,y, x#y, 3]",
            "+U[a, x, x, 2]",
            "-U[a, x, x, 2]",
            "+U[a, null, null, 1]",
        ],
        "without ORDER BY the values come in their own order; a value that was taken away before "
        "it came counts once it was given again",
    ),
    "M02-twophase-size3": (None, LAST),
    "M11-canal-by-name-twophase5": (None, LAST),
    "M04-twophase-retract-first": (
        ["+I[a, 1, 1, 2, 2, 2, 2]", "+I[b, 1, 1, 3, 3, 3, 3]", "+I[d, 1, 1, 5, 5, 5, 5]"],
        "pre-aggregation never changes a result: heads are dropped as in one phase",
    ),
    "M06-onephase-drop-bug-FLINK-35661": (
        ["+I[bbb, 2]", "+I[ccc, 3]"],
        "FLINK-35661: a key with nothing but heads must not take the others along",
    ),
}
# id -> why the query is refused for now.
OUTSIDE_THE_GRAMMAR = {
    "S16-listagg-append": "FIRST_VALUE, LAST_VALUE by arrival, which a retraction cannot undo",
    "M14-first-value-twophase": "FIRST_VALUE, LAST_VALUE by arrival",
}
# id -> the key of the spec that is wrong.
WRONG_SETTINGS = {
    "M12-size-zero-error": ({"size": 0}, "minibatch.size"),
    "M13-latency-zero-error": ({"latency": "0ms"}, "minibatch.latency"),
}


def vectors() -> list[dict[str, Any]]:
    if not VECTORS.exists():
        return []
    found: list[dict[str, Any]] = json.loads(VECTORS.read_text(encoding="utf-8"))["vectors"]
    return found


def spec(columns: list[str], sql: str, **sections: Any) -> dict[str, Any]:
    return {
        "name": "vector",
        "source": {"topic": "t"},
        "columns": dict.fromkeys(columns, "STRING"),
        "query": sql,
        "early_retractions": "drop",  # as Flink, which ran the vectors
        **sections,
    }


def spec_of(vector: dict[str, Any]) -> dict[str, Any]:
    conf = vector["conf"]
    size = int(conf.get("table.exec.mini-batch.size", 1))
    ttl = conf.get("table.exec.state.ttl", "0s").replace(" ", "")
    return spec(vector["cols"], vector["sql"], minibatch={"size": size}, state={"ttl": ttl})


def steps(columns: list[str], changes: list[list[str | None]]) -> list[dict[str, Any]]:
    return [{"op": op, "row": dict(zip(columns, values, strict=True))} for op, *values in changes]


def key_columns(sql: str) -> int:
    _, _, group = sql.rpartition("GROUP BY ")
    return group.count(",") + 1 if group != sql else 0


@pytest.mark.skipif(not VECTORS.exists(), reason=MISSING)
@pytest.mark.parametrize("vector", vectors(), ids=lambda vector: vector["id"])
def test_flink_gives_the_same_changelog_per_key(vector: dict[str, Any]) -> None:
    name, sql = vector["id"], vector["sql"]
    if name in OUTSIDE_THE_GRAMMAR:
        with pytest.raises(QueryError):
            replay(spec_of(vector), [])
        return
    if name in WRONG_SETTINGS:
        minibatch, place = WRONG_SETTINGS[name]
        with pytest.raises(SpecError, match=place):
            replay(spec(vector["cols"], sql, minibatch=minibatch), [])
        return
    got = flink.rows(replay(spec_of(vector), steps(vector["cols"], vector["input"])))
    wanted, _ = OVERRULED.get(name, (vector["expected"], ""))
    keys = key_columns(sql)
    if wanted is None:
        assert flink.table(got, keys) == flink.table(vector["expected"], keys)
        assert got != vector["expected"], "no longer overruled: take it off the list"
    else:
        assert flink.per_key(got, keys) == flink.per_key(wanted, keys)


QUICK = {"M01-onephase-size3", "M06-onephase-drop-bug-FLINK-35661", "S05-global-agg-no-key"}


def running_vectors() -> list[Any]:
    """Return the vectors that a job can run; most only in `make test-all`."""
    skipped = {*OUTSIDE_THE_GRAMMAR, *WRONG_SETTINGS}
    return [
        pytest.param(each, id=each["id"], marks=[] if each["id"] in QUICK else [pytest.mark.slow])
        for each in vectors()
        if each["id"] not in skipped
    ]


@pytest.mark.skipif(not VECTORS.exists(), reason=MISSING)
@pytest.mark.parametrize("vector", running_vectors())
def test_a_job_gives_what_flink_gives(vector: dict[str, Any], by_hand: ByHand) -> None:
    """The same rows through Kafka, Spark and Delta; each bundle of Flink is an epoch."""
    document = spec_of(vector) | {"source": {"topic": by_hand.topic, "format": "changelog-json"}}
    size = document["minibatch"]["size"]
    document["minibatch"] = {"size": 1_000_000, "latency": "1h"}
    job = by_hand.job(document)
    records = [json.dumps(each).encode() for each in steps(vector["cols"], vector["input"])]
    for start in range(0, len(records), size):
        job.epoch_of([(0, record) for record in records[start : start + size]])
    got = flink.rows(job.changelog_json())
    wanted, _ = OVERRULED.get(vector["id"], (vector["expected"], ""))
    keys = key_columns(vector["sql"])
    if wanted is None:
        assert flink.table(got, keys) == flink.table(vector["expected"], keys)
    else:
        assert flink.per_key(got, keys) == flink.per_key(wanted, keys)


@pytest.mark.skipif(not VECTORS.exists(), reason=MISSING)
def test_every_vector_we_treat_apart_exists() -> None:
    known = {vector["id"] for vector in vectors()}
    assert known >= {*OVERRULED, *OUTSIDE_THE_GRAMMAR, *WRONG_SETTINGS}


def test_canal_messages_give_what_their_rows_give(oracle: Path) -> None:
    by_id = {vector["id"]: vector for vector in vectors()}
    vector = by_id["S27-canal-data-by-name"]
    messages = (oracle / "canal" / "canal-data.txt").read_text(encoding="utf-8").splitlines()
    job = spec_of(vector)
    got = flink.rows(replay(job, [{"message": message} for message in messages]))
    assert flink.per_key(got, 1) == flink.per_key(vector["expected"], 1)
    whole = {**job, "minibatch": {"size": 5000}}
    once = flink.rows(replay(whole, [{"message": message} for message in messages]))
    assert flink.table(once, 1) == flink.table(vector["expected"], 1)
    assert all(line.startswith("+I") for line in once)


# --- what Flink's own tests state -----------------------------------------------------------------

USERS = ["u", "n", "e", "b"]
USER_CHANGES: list[list[str | None]] = [
    ["+I", "user1", "Tom", "tom@gmail.com", "10.02"],
    ["+I", "user2", "Jack", "jack@hotmail.com", "71.2"],
    ["-U", "user1", "Tom", "tom@gmail.com", "10.02"],
    ["+U", "user1", "Tom", "tom123@gmail.com", "8.1"],
    ["+I", "user3", "Bailey", "bailey@gmail.com", "9.99"],
    ["-D", "user2", "Jack", "jack@hotmail.com", "71.2"],
    ["+I", "user4", "Tina", "tina@gmail.com", "11.3"],
    ["-U", "user3", "Bailey", "bailey@gmail.com", "9.99"],
    ["+U", "user3", "Bailey", "bailey@qq.com", "9.99"],
]


def run(
    sql: str, columns: list[str], changes: list[list[str | None]], size: int = 1, ttl: str = "0s"
) -> list[str]:
    job = spec(columns, sql, minibatch={"size": size}, state={"ttl": ttl})
    return flink.rows(replay(job, steps(columns, changes)))


@pytest.mark.parametrize("size", [1, 4, 100])
def test_final_rows_of_the_user_changelog(size: int) -> None:
    """ChangelogSourceITCase: totals, groups by an expression, and a WHERE over a changing value."""
    totals = "SELECT COUNT(*), SUM(CAST(b AS DECIMAL(18, 2))), MAX(e) FROM T"
    assert flink.table(run(totals, USERS, USER_CHANGES, size), 0) == {
        (): "3, 29.39, tom123@gmail.com"
    }
    doubled = (
        "SELECT d, COUNT(*) AS c, MAX(e) AS m FROM (SELECT CAST(b AS DECIMAL(18, 2)) * 2 AS d, e "
        "FROM T) GROUP BY d"
    )
    assert flink.table(run(doubled, USERS, USER_CHANGES, size), 1) == {
        ("16.20",): "16.20, 1, tom123@gmail.com",
        ("19.98",): "19.98, 1, bailey@qq.com",
        ("22.60",): "22.60, 1, tina@gmail.com",
    }
    rich = "SELECT u, COUNT(*) AS c FROM T WHERE CAST(b AS DECIMAL(18, 2)) > 9 GROUP BY u"
    assert flink.table(run(rich, USERS, USER_CHANGES, size), 1) == {
        ("user3",): "user3, 1",
        ("user4",): "user4, 1",
    }


DISTINCT_ROWS = """2 3 2 1, 3 4 3 2, 2 2 1 2, 1 1 0 1, 5 11 10 1, 3 5 4 2, 4 10 9 2, 4 7 6 2,
5 14 13 2, 4 9 8 1, 5 15 14 2, 5 12 11 3, 4 8 7 1, 5 13 12 3, 3 6 5 3"""


@pytest.mark.parametrize("size", [1, 5, 100])
def test_distinct_aggregates_as_flinks_test_program(size: int) -> None:
    """GroupAggregateTestPrograms.GROUP_BY_DISTINCT: the rows after its first part; there AVG goes
    into a DOUBLE column."""
    changes: list[list[str | None]] = [["+I", *row.split()] for row in DISTINCT_ROWS.split(",")]
    sql = (
        "SELECT e, COUNT(DISTINCT a) FILTER (WHERE b > 10) AS ca, COUNT(DISTINCT a) AS c, "
        "SUM(DISTINCT a) AS sa, SUM(DISTINCT b) AS sb, AVG(b) AS m, COUNT(DISTINCT d) AS cd "
        "FROM (SELECT CAST(a AS INT) AS a, CAST(b AS INT) AS b, d, e FROM T) GROUP BY e"
    )
    assert flink.table(run(sql, ["a", "b", "d", "e"], changes, size), 1) == {
        ("1",): "1, 1, 4, 12, 32, 6, 5",
        ("2",): "2, 1, 4, 14, 57, 8, 7",
        ("3",): "3, 1, 2, 8, 31, 10, 3",
    }


def test_distinct_and_retracted_values_as_flinks_split_aggregate_test() -> None:
    """SplitAggregateITCase: its rows, and the same with rows that come and go again."""
    rows = """1 1 0, 1 2 1, 2 3 1, 3 5 1, 2 3 2, 2 4 3, 2 4 -, 2 5 4, 3 5 0, 2 4 3, 4 5 2, 2 4 3,
    4 5 -, 4 5 3, 2 2 0, 4 6 1"""
    taken = [[None if word == "-" else word for word in row.split()] for row in rows.split(",")]
    there: list[list[str | None]] = [["+I", *row] for row in taken]
    gone: list[list[str | None]] = [["-D", *row] for row in taken[3:9]]
    back: list[list[str | None]] = [["+I", *row] for row in taken[3:9]]
    sql = (
        "SELECT a, SUM(b) AS s, COUNT(DISTINCT c) AS n, AVG(b) AS m, LISTAGG(DISTINCT c, '#') AS l "
        "FROM (SELECT a, CAST(b AS INT) AS b, c FROM T) GROUP BY a"
    )
    wanted = {
        ("1",): "1, 3, 2, 1, 0#1",
        ("2",): "2, 29, 5, 3, 0#1#2#3#4",
        ("3",): "3, 10, 2, 5, 0#1",
        ("4",): "4, 21, 3, 5, 1#2#3",
    }
    for changes in (there, [*there, *gone, *back]):
        assert flink.table(run(sql, ["a", "b", "c"], changes, 4), 1) == wanted


# --- bugs that others shipped in this very computation --------------------------------------------
