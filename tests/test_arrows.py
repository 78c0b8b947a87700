"""The repository holds itself to its own rules: who may import whom, and what is nowhere at all.

    schemas ◄── jobs.core ◄── jobs.edge ◄── jobs (pipeline, job, commands)
    schemas, jobs.core ◄── service

Each rule walks the syntax trees, so a breach names its file and line; and each rule is tried on a
piece of code that breaks it, so that it cannot fall asleep.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from jobs.core.formats.debezium_fields import UNAVAILABLE
from schemas.spec.values import OWN_COLUMNS

CHECKOUT = Path(__file__).resolve().parents[1]
PRODUCT = ("schemas", "jobs", "service", "setup", "bench")
OURS = (*PRODUCT, "tests")
STANDARD = sys.stdlib_module_names
CORE_LIBRARIES = {"msgspec", "numpy", "sqlglot"}

FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 500
# Files that have outgrown the bound: how far they may go until they are split. A file that is
# below the bound again has to leave this list.
OUTGROWN: dict[str, int] = {}
EMPTY_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "manager", "tools"}

# What makes an outcome depend on when, where or how often something runs.
IMPURE_MODULES = {
    "asyncio", "glob", "io", "logging", "multiprocessing", "os", "pathlib", "random", "secrets",
    "shutil", "socket", "subprocess", "sys", "tempfile", "threading", "time", "uuid",
}  # fmt: skip
IMPURE_CALLS = {"open", "input", "print", "now", "utcnow", "today", "urandom"}
SQL_TEXT_CALLS = {"expr", "selectExpr"}


@dataclass(frozen=True, slots=True)
class Breach:
    path: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.what}"


@dataclass(frozen=True, slots=True)
class Source:
    """One file: its path in the checkout, its text and its tree."""

    path: str
    text: str

    @property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    def breach(self, node: ast.AST, what: str) -> Breach:
        return Breach(self.path, getattr(node, "lineno", 1), what)

    def within(self, *folders: str) -> bool:
        return any(self.path.startswith(folder + "/") for folder in folders)


Rule = Callable[[Source], Iterator[Breach]]


def sources(*folders: str) -> list[Source]:
    return [
        Source(path.relative_to(CHECKOUT).as_posix(), path.read_text(encoding="utf-8"))
        for folder in folders
        for path in sorted((CHECKOUT / folder).rglob("*.py"))
    ]


def imported(source: Source) -> Iterator[tuple[ast.AST, str]]:
    """Every module that a file imports anywhere, functions included."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node, alias.name
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{source.path}:{node.lineno}: relative imports hide the arrow"
            yield node, str(node.module)
            for alias in node.names:  # `from jobs import edge` imports jobs.edge
                yield node, f"{node.module}.{alias.name}"


def ours(module: str) -> bool:
    return module.partition(".")[0] in OURS


def below(module: str, *packages: str) -> bool:
    return any(module == package or module.startswith(package + ".") for package in packages)


def core_is_pure(source: Source) -> Iterator[Breach]:
    if not source.within("jobs/core"):
        return
    for node, module in imported(source):
        top = module.split(".")[0]
        allowed = top in STANDARD or top in CORE_LIBRARIES or below(module, "jobs.core", "schemas")
        if not allowed or top in IMPURE_MODULES:
            yield source.breach(node, f"jobs.core imports {module}")
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call):
            called = node.func
            name = called.id if isinstance(called, ast.Name) else getattr(called, "attr", "")
            if name in IMPURE_CALLS:
                yield source.breach(node, f"jobs.core calls {name}()")


def arrows_point_down(source: Source) -> Iterator[Breach]:
    allowed = {
        "schemas/": ("schemas",),
        "jobs/core/": ("schemas", "jobs.core"),
        "jobs/edge/": ("schemas", "jobs.core", "jobs.edge"),
        "jobs/": ("schemas", "jobs"),
        "service/": ("schemas", "jobs.core", "service"),
    }
    folder = next((folder for folder in allowed if source.path.startswith(folder)), None)
    if folder is None:
        return
    for node, module in imported(source):
        if ours(module) and not below(module, *allowed[folder]) and module != "jobs":
            yield source.breach(node, f"{folder} imports {module}")
        if folder == "service/" and below(module, "pyspark", "delta"):
            yield source.breach(node, f"the service imports {module}")


def no_text_becomes_sql(source: Source) -> Iterator[Breach]:
    if not source.within("jobs", "service"):
        return
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        called = node.func
        owner = ast.unparse(called.value)
        if called.attr in SQL_TEXT_CALLS or (called.attr == "sql" and "spark" in owner.lower()):
            yield source.breach(node, f"{owner}.{called.attr}() gives text to Spark as SQL")
        literal = node.args[:1] and isinstance(node.args[0], ast.Constant | ast.JoinedStr)
        if called.attr in ("where", "filter") and literal:
            yield source.breach(node, f"{owner}.{called.attr}() gives text to Spark as SQL")


def names_are_nouns_of_the_domain(source: Source) -> Iterator[Breach]:
    words = {part.removesuffix(".py") for part in source.path.split("/")}
    for word in words & EMPTY_NAMES:
        yield Breach(source.path, 1, f"{word!r} says nothing; name it by what it holds")


def functions_fit_a_screen(source: Source) -> Iterator[Breach]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or 0) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                yield source.breach(node, f"{node.name} has {lines} lines")


def files_hold_one_idea(source: Source) -> Iterator[Breach]:
    lines = source.text.count("\n")
    bound = OUTGROWN.get(source.path, FILE_LINES_MAX)
    if lines > bound:
        yield Breach(source.path, 1, f"{lines} lines; at most {bound}: split it")


RULES: list[tuple[Rule, tuple[str, ...]]] = [
    (core_is_pure, PRODUCT),
    (arrows_point_down, PRODUCT),
    (no_text_becomes_sql, PRODUCT),
    (names_are_nouns_of_the_domain, OURS),
    (functions_fit_a_screen, OURS),
    (files_hold_one_idea, PRODUCT),
]


@pytest.mark.parametrize(("rule", "folders"), RULES, ids=lambda each: getattr(each, "__name__", ""))
def test_no_file_breaks_the_rule(rule: Rule, folders: tuple[str, ...]) -> None:
    breaches = [str(breach) for source in sources(*folders) for breach in rule(source)]
    assert not breaches, "\n".join(["", *breaches])


BROKEN: list[tuple[Rule, str, str]] = [
    (core_is_pure, "jobs/core/x.py", "import pyarrow as pa"),
    (core_is_pure, "jobs/core/x.py", "def f():\n    import time"),
    (core_is_pure, "jobs/core/x.py", "from datetime import datetime\ndatetime.now()"),
    (core_is_pure, "jobs/core/x.py", "text = open('f').read()"),
    (core_is_pure, "jobs/core/x.py", "from jobs.edge.rows.columns import to_arrow"),
    (arrows_point_down, "schemas/x.py", "from jobs.core.values.change import Op"),
    (arrows_point_down, "jobs/edge/x.py", "from jobs.running.pipeline import Pipeline"),
    (arrows_point_down, "jobs/edge/x.py", "from jobs import pipeline"),
    (
        arrows_point_down,
        "service/x.py",
        "def f():\n    from jobs.edge.spark.session import session",
    ),
    (arrows_point_down, "service/x.py", "import pyspark.sql"),
    (arrows_point_down, "jobs/x.py", "import service.app"),
    (no_text_becomes_sql, "jobs/x.py", "F.expr('a + b')"),
    (no_text_becomes_sql, "jobs/x.py", "frame.selectExpr('a')"),
    (no_text_becomes_sql, "jobs/x.py", "self.spark.sql(text)"),
    (no_text_becomes_sql, "jobs/x.py", "frame.where(f'a = {b}')"),
    (names_are_nouns_of_the_domain, "jobs/edge/utils.py", ""),
    (functions_fit_a_screen, "jobs/x.py", "def f():\n" + "    pass\n" * FUNCTION_LINES_MAX),
    (files_hold_one_idea, "jobs/x.py", "pass\n" * (FILE_LINES_MAX + 1)),
]


@pytest.mark.parametrize(("rule", "path", "text"), BROKEN, ids=range(len(BROKEN)))
def test_a_breach_is_seen(rule: Rule, path: str, text: str) -> None:
    assert list(rule(Source(path, text)))


def test_columns_of_our_own_are_refused_as_columns_of_a_source() -> None:
    used = {
        node.value
        for source in sources("jobs")
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if re.fullmatch("__[a-z_]*[a-z]", node.value)
    }
    assert used - {UNAVAILABLE} == OWN_COLUMNS


def test_a_file_that_fits_again_leaves_the_list_of_the_outgrown() -> None:
    for path in OUTGROWN:
        lines = (CHECKOUT / path).read_text(encoding="utf-8").count("\n")
        assert lines > FILE_LINES_MAX, f"{path} has {lines} lines: take it off OUTGROWN"
