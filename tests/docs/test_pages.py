"""The documents are true where a machine can tell: specs, code, commands, links, named tests.

Each fenced block is what its word says. YAML that names a job is loaded and planned, Python is
compiled, `retally` commands are parsed, and the queries of docs/tables.md are run against a table.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
import yaml

from jobs.cli import main as command
from jobs.core.fold.program import Program
from jobs.core.fold.state import Group
from jobs.core.job.views import find_type_conflicts, plans_of
from jobs.core.plan.scalar_functions import FUNCTIONS
from jobs.core.sql.select import parse_query
from jobs.demo.run import build_parser
from jobs.edge.table.delta_epochs import EpochTable
from jobs.edge.table.epoch_files import Reject, TableLayout
from jobs.edge.table.file_writer import file_name, write_file
from jobs.reading.parts import ACCUMULATORS, PARTS, QUARANTINE
from schemas.spec.connections import load_connections
from schemas.spec.file import load_spec
from schemas.types.sql_types import SqlType
from tests.support.documents import (
    CHECKOUT,
    COLUMNS,
    DOCUMENTS,
    QUERY,
    TABLE_IN_DOCS,
    Block,
    blocks,
    find_anchors,
    name_of,
)
from tests.support.epoch_rows import epoch_row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")
_TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


def commands() -> Iterator[tuple[str, list[str]]]:
    """Every `retally` command line of the documents, without what the shell does to it."""
    for block in blocks("sh"):
        for line in block.text.splitlines():
            words = shlex.split(line, comments=True)
            if words and words[0].endswith("retally"):
                words = words[1 : words.index("<<END")] if "<<END" in words else words[1:]
                yield block.document, words


# --- what a reader may copy -----------------------------------------------------------------------


@pytest.mark.parametrize("block", blocks("yaml"), ids=str)
def test_a_yaml_example_is_a_job_or_connections(block: Block, tmp_path: Path) -> None:
    document = yaml.safe_load(block.text)
    if "name" in document:
        plans = plans_of(load_spec(block.text))
        assert all(plan.output for plan in plans.values()) and not find_type_conflicts(plans)
        return
    file = tmp_path / "connections.yaml"
    file.write_text(block.text)
    (tmp_path / "ca.pem").touch()
    secrets = ("KAFKA_PASSWORD", "REGISTRY_PASSWORD", "SHOP_PASSWORD")
    found = load_connections(file, environment=dict.fromkeys(secrets, "secret"))
    assert found.registries or found.databases or found.lookup("main").sasl is not None


def test_the_full_spec_says_the_defaults() -> None:
    """Whoever leaves out what has a default gets the very job that is written out."""
    (full,) = (b for b in blocks("yaml") if b.document == "job-spec.md" and "durable" in b.text)
    document = yaml.safe_load(full.text)
    required = {key: document[key] for key in ("name", "columns", "query")}
    source = {"topic": document["source"]["topic"]}
    sink = {"topic": document["sink"]["topic"]}
    assert load_spec(document) == load_spec({**required, "source": source, "sink": sink})


@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_python_examples_compile(block: Block) -> None:
    ast.parse(block.text)


@pytest.mark.parametrize(("document", "words"), list(commands()), ids=str)
def test_commands_are_what_the_command_line_takes(document: str, words: list[str]) -> None:
    if words[0] == "demo":
        build_parser().parse_args(words[1:])
    elif words != ["--help"]:
        command.build_parser().parse_args(words)


def test_every_make_target_of_the_documents_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (CHECKOUT / "Makefile").read_text(), re.MULTILINE))
    named = {
        words[1]
        for block in blocks("sh")
        for line in block.text.splitlines()
        if (words := shlex.split(line, comments=True)) and words[0] == "make"
    }
    assert {"demo", "test"} <= named <= targets


# --- what a reader may follow ---------------------------------------------------------------------


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_links_lead_somewhere(path: Path) -> None:
    broken = [
        target
        for target in _LINK.findall(path.read_text())
        if not re.match(r"https?:", target) and not (path.parent / target).exists()
    ]
    assert broken == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_links_into_a_page_lead_to_a_heading(path: Path) -> None:
    for page, anchor in re.findall(r"\]\(([\w./-]*\.md)?#([^)]+)\)", path.read_text()):
        target = path.parent / page if page else path
        assert anchor in find_anchors(target), f"{target.name}#{anchor}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_named_tests_exist(path: Path) -> None:
    for file, name in _TEST.findall(path.read_text()):
        assert (CHECKOUT / file).exists(), file
        if name:
            assert f"\ndef {name}(" in (CHECKOUT / file).read_text(), f"{file}::{name}"


def test_the_code_map_names_what_is_there() -> None:
    text = (CHECKOUT / "ARCHITECTURE.md").read_text()
    named = set(re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE))
    areas = [
        CHECKOUT / area
        for area in ("schemas", "jobs", "jobs/core", "jobs/edge", "service", "client")
    ]
    packages = {
        f"{package.parent.relative_to(CHECKOUT).as_posix()}/"
        for area in areas
        for package in area.glob("*/__init__.py")
    }
    assert named == packages - {"jobs/core/", "jobs/edge/"}


# --- the table, as docs/tables.md has it ----------------------------------------------------------


# Three epochs: a group that changes, one that goes, one that goes and comes back, one of NULL.
EPOCHS: list[dict[str | None, tuple[int, int, int] | None]] = [
    {"bolt": (3, 3, 1), "saw": (5, 5, 1), "nut": (1, 1, 1)},
    {"bolt": (11, 8, 2), "saw": None, "nut": None, None: (7, 7, 1)},
    {"nut": (2, 2, 1)},
]
RAW = (b"a\xffb", "Grüße".encode())
CURRENT = {("bolt", 11, 8, 2), ("nut", 2, 2, 1), (None, 7, 7, 1)}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job's table, written by what writes one."""
    plan = parse_query(QUERY, {name: SqlType.parse(kind) for name, kind in COLUMNS.items()})
    layout = TableLayout(Program(plan))
    root = tmp_path_factory.mktemp("job") / "epochs"
    epochs = EpochTable.create(root, layout)
    epochs.commit_epoch(epoch_row(0, plan), ())
    for number, groups in enumerate(EPOCHS, 1):
        upserts = [
            ((name,), None if result is None else Group((result[2], result[0], result[2]), result))
            for name, result in groups.items()
        ]
        accumulators = layout.accumulators_table(number, [0] * len(upserts), upserts)
        name = file_name(ACCUMULATORS, number, f"uuid{number}", "0")
        refused = layout.quarantine_table(
            number,
            [Reject("shop.product", 0, number, 1, "not UTF-8", "", raw, len(raw)) for raw in RAW],
        )
        bad = file_name(QUARANTINE, number, f"uuid{number}", "0")
        files = [write_file(root, name, accumulators), write_file(root, bad, refused)]
        epochs.commit_epoch(epoch_row(number, plan), files)
    return root


def _current(engine: str, table: Path, **names: Any) -> Any:
    """What the block that uses an engine calls `current`."""
    (block,) = (b for b in blocks("python") if b.document == "tables.md" and engine in b.text)
    assert TABLE_IN_DOCS in block.text
    exec(compile(block.text.replace(TABLE_IN_DOCS, str(table)), engine, "exec"), names)
    return names["current"]


def test_the_duckdb_query_gives_the_current_results(table: Path) -> None:
    assert set(_current("duckdb.sql", table).fetchall()) == CURRENT


@pytest.mark.slow
@pytest.mark.spark
def test_the_spark_query_gives_the_current_results(table: Path, spark: SparkSession) -> None:
    own = spark.newSession()  # the settings of Delta's guide are for a session of one's own
    own.conf.set("spark.databricks.delta.requiredSparkConfsCheck.enabled", "false")
    current = _current("spark.sql", table, spark=own)
    assert {tuple(row) for row in current.collect()} == CURRENT


def test_the_other_queries_run(table: Path) -> None:
    from deltalake import DeltaTable

    connection = duckdb.connect()
    connection.register("epochs", DeltaTable(str(table)).to_pyarrow_dataset())
    block = [b for b in blocks("sql") if b.document == "tables.md"][-1]
    ran = [connection.sql(text).fetchall() for text in block.text.split(";") if text.strip()]
    assert [len(rows) for rows in ran] == [2 * len(EPOCHS), len(EPOCHS) + 1, 0]
    assert {row[-1] for row in ran[0]} == {"a\\xFFb", "Grüße"}
    (block,) = (b for b in blocks("sql") if b.document == "time.md")
    told = connection.sql(block.text).fetchall()
    assert len(told) == len(EPOCHS) + 1


def test_the_columns_of_each_part_are_those_in_the_document() -> None:
    plan = parse_query(QUERY, {name: SqlType.parse(kind) for name, kind in COLUMNS.items()})
    (key,) = (column for column in plan.columns if column.name == "id")
    layout = TableLayout(Program(replace(plan, primary_key=(key,))))
    text = (CHECKOUT / "docs" / "tables.md").read_text()
    told = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", text, re.MULTILINE))
    assert set(told) == set(PARTS)
    for part, columns in told.items():
        assert re.findall(r"[a-z]\w*", columns) == layout.schema(part).names, part


def test_every_function_of_the_grammar_is_in_the_guide() -> None:
    guide = (CHECKOUT / "docs" / "sql.md").read_text(encoding="utf-8")
    assert not [name for name in FUNCTIONS if not re.search(rf"\b{name}\b", guide)]
