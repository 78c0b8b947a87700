"""The repository holds itself to its own rules: who may import whom, and what is nowhere at all.

    schemas ◄── jobs.core ◄── jobs.reading, jobs.topics ◄── jobs.edge ◄── jobs (running, cli, ...)
    schemas, jobs.core, jobs.migrating, jobs.reading, jobs.topics ◄── service
    retally (in client/) ◄── jobs.cli, jobs.demo

LAYERS has the packages in order: each imports itself and those before it.

Each rule walks the syntax trees, so a breach names its file and line; and each rule is tried on a
piece of code that breaks it, so that it cannot fall asleep.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from jobs.core.formats.debezium_fields import UNAVAILABLE
from schemas.spec.values import OWN_COLUMNS

CHECKOUT = Path(__file__).resolve().parents[1]
PRODUCT = ("schemas", "jobs", "service", "client/retally", "setup", "bench")
OURS = (*PRODUCT, "tests")
STANDARD = sys.stdlib_module_names
CORE_LIBRARIES = {"llvmlite", "msgspec", "numba", "numpy", "sqlglot"}

FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 500
# Files that have outgrown the bound: how far they may go until they are split. A file that is
# below the bound again has to leave this list.
OUTGROWN: dict[str, int] = {}
EMPTY_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "manager", "tools"}

# From the ground up.
LAYERS = [
    f"{area}.{name}" if name else area
    for area, names in {
        "retally": "documents errors http addresses results following leader client blocking",
        "schemas": "limits failures types table directory spec documents process",
        "jobs.core": """kernels values plan evaluate aggregates sql rows join fold formats time
            publish explain job suggestion generators functions homes""",
        "jobs.migrating": "",
        "jobs.reading": """parts json_columns files scan epoch_rows savepoints version row_shape
            history results difference listing group_key multisets joined_rows group
            quarantine state_size""",
        "jobs.topics": "consumer samples schema_registry",
        "jobs.edge": "machine process rows files kafka table state spark tasks publisher",
        "jobs": """setup running changing checking offline replay querying cli
            cli.commands demo""",
        "service": """request_ids problems paths transaction log_lines probe histogram
            request_counts attempts access limits sql settings recent_values supervision live
            answers runtime routes middleware console.formatting console.rows console.asset_files
            console.visitor console.page console.job_view console.pictures console.explanations
            console.editor console.pages console.routes app postgres serving""",
    }.items()
    for name in names.split() or [""]
]
FOLDER_MODULES_MAX = 20
UNFORMATTED_MAX = 10  # tables that are read as tables

# What makes an outcome depend on when, where or how often something runs.
IMPURE_MODULES = {
    "asyncio",
    "glob",
    "io",
    "logging",
    "multiprocessing",
    "os",
    "pathlib",
    "random",
    "secrets",
    "shutil",
    "socket",
    "subprocess",
    "sys",
    "tempfile",
    "threading",
    "time",
    "uuid",
}
IMPURE_CALLS = {"open", "input", "print", "now", "utcnow", "today", "urandom"}
SQL_TEXT_CALLS = {"expr", "selectExpr"}


@dataclass(frozen=True, slots=True)
class Breach:
    path: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.what}"


@dataclass(frozen=True)
class Source:
    """One file: its path in the checkout, its text and its tree."""

    path: str
    text: str

    @property
    def module(self) -> str:
        path = self.path.removeprefix("client/")  # it has a package of its own
        return path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    def breach(self, node: ast.AST, what: str) -> Breach:
        return Breach(self.path, getattr(node, "lineno", 1), what)

    def within(self, *folders: str) -> bool:
        return any(self.path.startswith(folder + "/") for folder in folders)


Rule = Callable[[Source], Iterator[Breach]]


def sources(*folders: str) -> Iterator[Source]:
    for folder in folders:
        for path in sorted((CHECKOUT / folder).rglob("*.py")):
            yield Source(path.relative_to(CHECKOUT).as_posix(), path.read_text(encoding="utf-8"))


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


def unit_of(module: str) -> str | None:
    """The package or module of LAYERS that a module belongs to."""
    return max((unit for unit in LAYERS if below(module, unit)), key=len, default=None)


def may_import(importer: str, imported: str) -> bool:
    if below(imported, "jobs") and below(importer, "service"):
        return below(imported, "jobs.core", "jobs.migrating", "jobs.reading", "jobs.topics")
    if below(imported, "retally") and not below(importer, "retally"):
        return below(importer, "jobs.cli", "jobs.demo")
    return LAYERS.index(imported) <= LAYERS.index(importer)


def arrows_point_down(source: Source) -> Iterator[Breach]:
    """A module imports its own package and those before it in LAYERS."""
    folders = ("schemas", "jobs", "service", "client")
    if not source.within(*folders) or source.path.endswith("/__init__.py"):
        return
    unit = unit_of(source.module)
    if unit is None:
        yield Breach(source.path, 1, "its package is not in LAYERS")
        return
    for node, module in imported(source):
        other = unit_of(module)
        if other is not None and not may_import(unit, other):
            yield source.breach(node, f"{unit} imports {module}")
        elif module.partition(".")[0] in ("setup", "bench", "tests"):
            yield source.breach(node, f"the product imports {module}")
        if source.within("service") and below(module, "pyspark", "delta"):
            yield source.breach(node, f"the service imports {module}")


def the_client_needs_httpx_only(source: Source) -> Iterator[Breach]:
    """What else it uses, it imports in the function that a user calls for it."""
    if not source.within("client"):
        return
    for node in source.tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        for _, module in imported(Source(source.path, ast.unparse(node))):
            top = module.split(".")[0]
            checked = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
            if top not in STANDARD | {"httpx", "retally"} and not checked:
                yield source.breach(node, f"the client imports {module}")


def shared_helpers_are_in_support(source: Source) -> Iterator[Breach]:
    for node, module in imported(source):
        if re.match(r"tests\..*\b(test_|conftest)", module):
            yield source.breach(node, f"imports {module}; what tests share is in tests.support")


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


def constructors_start_nothing(source: Source) -> Iterator[Breach]:
    """No `__init__`, nor a method that it calls, starts a thread, process or query."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ClassDef):
            for call in calls_of_constructor(node):
                name = ast.unparse(call.func)
                if re.search(r"\b(Popen|start|fork|run|check_output)$", name):
                    yield source.breach(call, f"the constructor of {node.name} calls {name}()")


def calls_of_constructor(node: ast.ClassDef) -> Iterator[ast.Call]:
    """Yield the calls of a constructor, and of the methods of its own that it calls."""
    methods = {each.name: each for each in node.body if isinstance(each, ast.FunctionDef)}
    reached = [methods[name] for name in ("__init__", "__post_init__") if name in methods]
    for method in reached:  # grows
        for call in ast.walk(method):
            if isinstance(call, ast.Call):
                yield call
                own = methods.get(ast.unparse(call.func).removeprefix("self."))
                if own is not None and own not in reached:
                    reached.append(own)


RULES: list[tuple[Rule, tuple[str, ...]]] = [
    (core_is_pure, PRODUCT),
    (arrows_point_down, PRODUCT),
    (the_client_needs_httpx_only, PRODUCT),
    (shared_helpers_are_in_support, OURS),
    (no_text_becomes_sql, PRODUCT),
    (names_are_nouns_of_the_domain, OURS),
    (constructors_start_nothing, PRODUCT),
    (functions_fit_a_screen, OURS),
    (files_hold_one_idea, PRODUCT),
]


@dataclass(frozen=True, slots=True)
class Found:
    """What one walk through all files finds; each is parsed once, and its tree is let go."""

    breaches: dict[Rule, list[Breach]]
    imports: dict[str, set[str]]  # of each module of the product
    own_columns: set[str]


@pytest.fixture(scope="module")
def found() -> Found:
    found = Found({rule: [] for rule, _ in RULES}, {}, set())
    for source in sources(*OURS):
        for rule, folders in RULES:
            if source.within(*folders):
                found.breaches[rule] += rule(source)
        if source.within("schemas", "jobs", "service", "client"):
            found.imports[source.module] = {name for _, name in imported(source)}
        if source.within("jobs"):
            found.own_columns.update(own_columns(source))
    return found


def own_columns(source: Source) -> Iterator[str]:
    for node in ast.walk(source.tree):
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and re.fullmatch("__[a-z_]*[a-z]", text):
            yield text


@pytest.mark.parametrize("rule", [rule for rule, _ in RULES], ids=lambda rule: rule.__name__)
def test_no_file_breaks_the_rule(rule: Rule, found: Found) -> None:
    assert not found.breaches[rule], "\n".join(["", *map(str, found.breaches[rule])])


BROKEN: list[tuple[Rule, str, str]] = [
    (core_is_pure, "jobs/core/x.py", "import pyarrow as pa"),
    (core_is_pure, "jobs/core/x.py", "def f():\n    import time"),
    (core_is_pure, "jobs/core/x.py", "from datetime import datetime\ndatetime.now()"),
    (core_is_pure, "jobs/core/x.py", "text = open('f').read()"),
    (core_is_pure, "jobs/core/x.py", "from jobs.edge.rows.columns import to_arrow"),
    (arrows_point_down, "schemas/spec/x.py", "from jobs.core.values.change import Op"),
    (arrows_point_down, "jobs/edge/rows/x.py", "from jobs.running.pipeline import Pipeline"),
    (arrows_point_down, "jobs/edge/rows/x.py", "from jobs.running import pipeline"),
    (
        arrows_point_down,
        "service/live/x.py",
        "def f():\n    from jobs.edge.spark.session import session",
    ),
    (arrows_point_down, "service/live/x.py", "import pyspark.sql"),
    (arrows_point_down, "jobs/running/x.py", "import service.app"),
    (arrows_point_down, "jobs/core/plan/x.py", "from jobs.core.fold.state import State"),
    (arrows_point_down, "jobs/edge/state/x.py", "from jobs.edge.spark import session"),
    (arrows_point_down, "service/live/x.py", "from service.runtime import Runtime"),
    (arrows_point_down, "service/live/x.py", "from jobs.running.pipeline import Pipeline"),
    (arrows_point_down, "jobs/new/x.py", ""),
    (arrows_point_down, "jobs/cli/x.py", "from setup import lock"),
    (arrows_point_down, "client/retally/x.py", ""),
    (arrows_point_down, "client/retally/http.py", "import retally.client"),
    (arrows_point_down, "client/retally/http.py", "from schemas.spec.job import JobSpec"),
    (arrows_point_down, "service/live/x.py", "import retally.client"),
    (the_client_needs_httpx_only, "client/retally/x.py", "import msgspec"),
    (shared_helpers_are_in_support, "tests/core/test_x.py", "from tests.core.test_y import row"),
    (no_text_becomes_sql, "jobs/x.py", "F.expr('a + b')"),
    (no_text_becomes_sql, "jobs/x.py", "frame.selectExpr('a')"),
    (no_text_becomes_sql, "jobs/x.py", "self.spark.sql(text)"),
    (no_text_becomes_sql, "jobs/x.py", "frame.where(f'a = {b}')"),
    (names_are_nouns_of_the_domain, "jobs/edge/utils.py", ""),
    (constructors_start_nothing, "jobs/x.py", "class A:\n def __init__(self): Thread().start()"),
    (
        constructors_start_nothing,
        "jobs/x.py",
        "class A:\n def __init__(self): self._go()\n def _go(self): subprocess.Popen([])",
    ),
    (functions_fit_a_screen, "jobs/x.py", "def f():\n" + "    pass\n" * FUNCTION_LINES_MAX),
    (files_hold_one_idea, "jobs/x.py", "pass\n" * (FILE_LINES_MAX + 1)),
]


@pytest.mark.parametrize(("rule", "path", "text"), BROKEN, ids=range(len(BROKEN)))
def test_a_breach_is_seen(rule: Rule, path: str, text: str) -> None:
    assert list(rule(Source(path, text)))


def test_no_files_import_each_other_in_a_circle(found: Found) -> None:
    graph: dict[str, set[str]] = {}
    for module, names in found.imports.items():
        # A module of a package is imported through the package.
        graph[module] = {n for n in names & found.imports.keys() if not below(module, n)}
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


def test_the_formatter_formats_all_but_a_few_tables() -> None:
    marks = {source.path: source.text.count("# fmt:" + " ") for source in sources(*OURS)}
    assert sum(marks.values()) <= UNFORMATTED_MAX, {at: n for at, n in marks.items() if n}


def test_every_layer_is_there() -> None:
    for unit in LAYERS:
        folder = CHECKOUT / "client" if below(unit, "retally") else CHECKOUT
        path = folder / unit.replace(".", "/")
        assert path.is_dir() or path.with_suffix(".py").is_file(), unit


def test_no_folder_has_too_many_modules() -> None:
    counts = Counter(
        Path(source.path).parent.as_posix()
        for source in sources(*OURS)
        if not source.path.endswith("/__init__.py")
    )
    assert {folder: n for folder, n in counts.items() if n > FOLDER_MODULES_MAX} == {}


def test_columns_of_our_own_are_refused_as_columns_of_a_source(found: Found) -> None:
    assert found.own_columns - {UNAVAILABLE} == OWN_COLUMNS


def test_a_file_that_fits_again_leaves_the_list_of_the_outgrown() -> None:
    for path in OUTGROWN:
        lines = (CHECKOUT / path).read_text(encoding="utf-8").count("\n")
        assert lines > FILE_LINES_MAX, f"{path} has {lines} lines: take it off OUTGROWN"


def test_what_a_module_does_as_a_program_is_its_last_statement() -> None:
    """Names that follow are not defined yet, and nobody who imports it notices."""
    for area in ("bench", "client", "jobs", "schemas", "service", "setup", "tests"):
        for path in sorted((CHECKOUT / area).rglob("*.py")):
            for node in ast.parse(path.read_text(encoding="utf-8")).body[:-1]:
                assert not isinstance(node, ast.If) or "__main__" not in ast.unparse(node.test), (
                    path
                )
