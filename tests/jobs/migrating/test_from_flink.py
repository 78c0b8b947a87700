"""retally from-flink: what it writes where, and what it never writes."""

from __future__ import annotations

import re
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.cli.main import main
from jobs.migrating.conversion import convert
from schemas import limits
from schemas.spec.file import load_spec
from tests.support.examples import examples

CHECKOUT = Path(__file__).parents[3]
VECTORS = CHECKOUT / "tests" / "vectors" / "flink_sql"
ITEMS = (VECTORS / "items.sql").read_text()


def run(sql: str, folder: Path) -> int:
    folder.mkdir(exist_ok=True)
    file = folder / "job.sql"
    file.write_text(sql)
    return main(["from-flink", str(file), "--out", str(folder / "out")])


def test_the_job_of_the_documents_is_the_same_both_ways() -> None:
    page = (CHECKOUT / "docs" / "flink.md").read_text()
    sql, spec = re.findall(r"```(?:yaml)?\n(.*?)```", page.partition("## One job")[2], re.DOTALL)[
        :2
    ]
    (draft,) = convert(sql).drafts
    assert load_spec(draft.text()) == load_spec(spec)


def test_no_password_is_in_a_spec_and_nobody_else_reads_the_connections(tmp_path: Path) -> None:
    assert run((VECTORS / "passwords.sql").read_text(), tmp_path) == 0
    connections = tmp_path / "out" / "connections.yaml"
    assert stat.S_IMODE(connections.stat().st_mode) == 0o600
    for path in (tmp_path / "out").iterdir():
        text = path.read_text()
        assert "tr-secret" not in text
        assert ("w-secret" in text) is (path == connections)
        assert ("example.com" in text) is (path == connections)


def test_what_it_wrote_is_written_again_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(ITEMS, tmp_path) == 0
    spec = tmp_path / "out" / "items.yaml"
    first = spec.read_text()
    assert run(ITEMS, tmp_path) == 0
    assert spec.read_text() == first
    spec.write_text("name: mine\n")
    assert run(ITEMS, tmp_path) == 2
    assert "items.yaml is not from from-flink" in capsys.readouterr().err
    assert spec.read_text() == "name: mine\n"


@pytest.mark.parametrize("table", ["../../items", "/tmp/items", "a/b", ".hidden", "a\nb"])
def test_no_name_of_a_table_leads_out_of_the_folder(table: str, tmp_path: Path) -> None:
    sql = ITEMS.replace("TABLE items", f"TABLE `{table}`").replace("INTO items", f"INTO `{table}`")
    assert run(sql, tmp_path) == 0
    names = {path.name for path in (tmp_path / "out").iterdir()} - {"connections.yaml"}
    assert len(names) == 1
    assert re.fullmatch(r"[\w-]+\.yaml", names.pop())
    assert {path.name for path in tmp_path.iterdir()} == {"job.sql", "out"}


def test_a_table_cannot_take_the_name_of_the_connections(tmp_path: Path) -> None:
    sql = ITEMS.replace("TABLE items", "TABLE connections").replace(
        "INTO items", "INTO connections"
    )
    assert run(sql, tmp_path) == 2


@pytest.mark.parametrize(
    ("old", "new", "there", "reason"),
    [
        ("'format' = 'canal-json'", "'format' = 'xml'", "'format' = 'xml'", "'xml' has no"),
        ("'5000'", "'-1'", "'table.exec.mini-batch.size'", "must be greater than 0"),
        ("'1 s'", "'1 parsec'", "'table.exec.mini-batch.allow", "unknown unit 'parsec'"),
        ("'5' SECOND", "'5' MONTH", "INTERVAL '5' MONTH", "write INTERVAL 'n' SECOND"),
        ("'5' SECOND", "'1' DAY TO SECOND", "INTERVAL '1' DAY", "write INTERVAL 'n' SECOND"),
        ("'5' SECOND", "'5' SECOND + INTERVAL '1' SECOND", "INTERVAL '5'", "write INTERVAL 'n'"),
        ("- INTERVAL '5' SECOND", "- 5", "updated_at - 5", "a watermark is the time column"),
        ("SUM(cnt)", "SUM(cmt)", "cmt)", "unknown column `cmt`"),
        ("SUM(cnt)", "SUM(name)", "name), MAX", "SUM needs numbers"),
        ("'topic' = 'shop.product'", "'topic-pattern' = 's.*'", "'topic-pattern'", "the topics"),
        ("updated_at AS", "gone AS", "WATERMARK", "gone is not a column"),
        ("GROUP BY", "GRUOP BY", "GRUOP", "(try: GROUP BY)"),
        ("SELECT name", "SELECT DISTINCT ON (name) name", "name) name", "part of the query is"),
        ("SELECT name", "SLECT name", "SLECT", "expected SELECT here"),
        ("product GROUP BY", "product WHERE GROUP BY", "GROUP BY", "near 'GROUP BY name;'"),
        ("cnt INT,", "cnt,", ", updated_at", "expected a type here"),
        ("CREATE TABLE items (", "CREATE TABLE items (n INT FOO, ", "FOO", "part of a column is"),
        ("'sink.parallelism' = ", "'sink.parallelism' ", "'4'", "expected = here"),
    ],
)
def test_what_is_not_taken_has_its_place(
    old: str, new: str, there: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sql = ITEMS.replace(old, new)
    assert sql != ITEMS
    assert run(sql, tmp_path) == 2
    before = sql[: sql.index(there)]
    place = f"job.sql:{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}: "
    errors = capsys.readouterr().err
    assert place in errors
    assert reason in errors


@pytest.mark.parametrize(
    ("delay", "duration"),
    [
        ("INTERVAL '1' MINUTE - INTERVAL '30' SECOND", "90s"),
        ("INTERVAL '1' DAY(2) - INTERVAL '1' HOUR - INTERVAL '0.5' SECONDS", "90000500ms"),
        ("interval '5' second(3)", "5s"),
    ],
)
def test_a_watermark_is_behind_by_all_its_intervals(delay: str, duration: str) -> None:
    (draft,) = convert(ITEMS.replace("INTERVAL '5' SECOND", delay)).drafts
    assert draft.document["watermark"]["delay"] == duration


EVENTS = (VECTORS / "nested.sql").read_text().partition("CREATE TABLE per_city")[0]


@pytest.mark.parametrize(
    ("select", "query"),
    [
        # A comment on a field of a ROW is no part of its type.
        ("who.age AS age, COUNT(*) FROM events GROUP BY who.age", "who_age AS age, COUNT(*)"),
        # A unit is no name.
        ("MAX(at) - INTERVAL '1' WEEK FROM events", "MAX(at) - INTERVAL '1' WEEK FROM events"),
        # Nor is it the column `hour` of a view that joins.
        (
            "`hour`, MIN(EXTRACT(hour FROM at)) FROM (SELECT e.amount AS `hour`, e.at FROM events "
            "AS e JOIN other AS o ON e.id = o.id) GROUP BY `hour`",
            "e.amount AS hour, MIN(EXTRACT(HOUR FROM e.at))",
        ),
        (
            "id, COUNT(*) FROM events WHERE id NOT IN (1, 2) AND id IS NOT NULL GROUP BY id",
            "WHERE id NOT IN (1, 2) AND id IS NOT NULL",
        ),
    ],
)
def test_words_are_what_the_grammar_says(select: str, query: str) -> None:
    events = EVENTS.replace("ROW<", "ROW<age INT NOT NULL COMMENT 'in years', ")
    events = events.replace("amount INT", "amount INT, at TIMESTAMP(3)")
    other = events.replace("TABLE events", "TABLE other")
    conversion = convert(f"{events}{other}SELECT {select};")
    assert list(conversion.problems) == []
    (draft,) = conversion.drafts
    assert query in " ".join(draft.document["query"].split())
    assert draft.spec


def test_a_problem_of_a_converted_query_is_where_its_words_are() -> None:
    sql = (VECTORS / "nested.sql").read_text().replace("SUM(amount)", "SUM(who.home.zip)")
    (problem,) = convert(sql).problems
    assert problem.reason.startswith("SUM needs numbers")
    assert sql[problem.offset :].startswith("who.home.zip) FROM")


def test_a_file_that_cannot_be_read_is_bad_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["from-flink", str(tmp_path / "none.sql")]) == 2
    assert "No such file" in capsys.readouterr().err
    file = tmp_path / "job.sql"
    file.write_bytes(b"\xff")
    assert main(["from-flink", str(file)]) == 2
    file.write_bytes(b" " * (limits.SPEC_BYTES_MAX + 1))
    assert main(["from-flink", str(file)]) == 2
    assert "split it" in capsys.readouterr().err


LONG = "the_orders_of_every_shop_in_the_whole_country"


def sinks(*tables: str) -> str:
    """Return a file with a sink and an INSERT for each table."""
    sql = ITEMS[: ITEMS.index("CREATE TABLE items")]
    statements = ITEMS.removeprefix(sql)
    for number, table in enumerate(tables):
        copy = re.sub(r"(TABLE|INTO) items", rf"\1 `{table}`", statements)
        sql += copy.replace("items-changes", f"topic-{number}")
    return sql


@pytest.mark.parametrize(
    "tables",
    [
        (f"{LONG}_by_day", f"{LONG}_by_hour", f"{LONG}_BY_DAY"),
        ("Items", "items", "iTems"),
        ("by_name", "by-name"),
        ("a/b", "a-b"),
        ("商品", "店"),
    ],
)
def test_no_two_tables_have_one_job_or_one_file(tables: tuple[str, ...]) -> None:
    conversion = convert(sinks(*tables))
    assert not conversion.problems
    names = {load_spec(draft.text()).name for draft in conversion.drafts}
    files = {draft.file_name.lower() for draft in conversion.drafts}
    assert len(names) == len(files) == len(tables)


def test_the_name_of_a_job_with_a_long_name_does_not_depend_on_others() -> None:
    day, hour = convert(sinks(f"{LONG}_by_day", f"{LONG}_by_hour")).drafts
    (alone,) = convert(sinks(f"{LONG}_by_hour")).drafts
    assert alone.document["name"] == hour.document["name"] != day.document["name"]
    assert alone.file_name == hour.file_name == f"{LONG}_by_hour.yaml"


WORDS = re.findall(
    r"\w+|[^\w\s]|\s+", "\n".join(path.read_text() for path in VECTORS.glob("*.sql"))
)


@examples(150)
@given(words=st.lists(st.sampled_from(WORDS), max_size=60))
def test_no_words_make_it_raise(words: list[str]) -> None:
    conversion = convert("".join(words))
    assert conversion.problems or conversion.drafts
    assert all(isinstance(line, str) for line in conversion.describe("f"))


@examples(150)
@given(
    cut=st.integers(0, 3_000),
    words=st.lists(st.sampled_from(WORDS), max_size=3),
    skip=st.integers(0, 30),
)
def test_no_damage_to_a_file_makes_it_raise(cut: int, words: list[str], skip: int) -> None:
    for name in ("items", "hop", "nested", "chain"):
        sql = (VECTORS / f"{name}.sql").read_text()
        conversion = convert(sql[:cut] + "".join(words) + sql[cut + skip :])
        list(conversion.describe("f"))


def test_deep_subqueries_are_refused_with_a_sentence() -> None:
    tables = "".join(
        f"CREATE TABLE {name} (a INT, n BIGINT) WITH ('connector' = 'kafka', 'topic' = '{name}', "
        "'format' = 'canal-json');\n"
        for name in ("t", "s")
    )
    nested = "(SELECT a FROM " * 600 + "t" + ")" * 600
    refused = convert(f"{tables}INSERT INTO s SELECT a, COUNT(*) FROM {nested} GROUP BY a;")
    assert [problem.reason for problem in refused.problems] == [
        "the query is nested more than 40 levels deep"
    ]
    views = "".join(f"CREATE VIEW v{n + 1} AS SELECT a FROM v{n};\n" for n in range(1_200))
    views = "CREATE VIEW v0 AS SELECT a FROM t;\n" + views
    refused = convert(f"{tables}{views}INSERT INTO s SELECT a, COUNT(*) FROM v1200 GROUP BY a;")
    assert "nested more than 40 levels" in refused.problems[0].reason


@pytest.mark.parametrize(
    ("chain", "reason"),
    [
        (" IS NOT DISTINCT FROM cnt" * 600, "nested too deeply"),
        (".cnt" * 3_000, "nested too deeply"),
        (" + cnt" * 20_000, "longer than 20000 characters"),
        ("[1" * 3_000 + "]" * 3_000, "nested too deeply"),
    ],
)
def test_long_chains_are_refused_with_a_sentence(chain: str, reason: str) -> None:
    (problem,) = convert(ITEMS.replace("SUM(cnt", f"SUM(cnt{chain}")).problems
    assert reason in problem.reason
