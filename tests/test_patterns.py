"""No message, spec or query meets a pattern that may take longer than a pass over it.

Python's `re` tries every way and holds the interpreter meanwhile: one message of 900 KB stopped the
whole service for hours. So the service has `re` only in the places below. Other patterns are RE2
(schemas.spec.values), or code that reads a text once.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[1]
# What the service runs on messages, specs and queries.
FOLDERS = ("service", "jobs/core/suggestion", "jobs/reading", "jobs/topics")
REQUEST = "a part of a request, which is short, and no part repeats what another one matches"
# How often each file calls `re`, and why it may.
ALLOWED = {
    "service/access/requirements.py": (2, REQUEST),
    "service/access/tokens.py": (1, REQUEST),
    "service/answers/changes.py": (1, REQUEST),
    "service/answers/media.py": (1, "values of rows: one pass, because no part repeats another"),
    "service/answers/results.py": (3, REQUEST),
    "service/console/pages/help.py": (1, "headings of our own documents"),
    "service/console/pages/rest.py": (1, "our own descriptions of routes"),
    "service/middleware/gate.py": (2, REQUEST),
    "service/postgres/commands.py": (6, "statements up to QUERY_CHARACTERS_MAX, in one pass"),
    "service/problems.py": (3, "our own routes, matched with the path of a request"),
    "service/middleware/lookup.py": (1, REQUEST),
    "service/request_ids.py": (2, REQUEST),
    "service/routes/offsets.py": (1, REQUEST),
    "service/routes/results.py": (1, REQUEST),
    "service/supervision/job_log.py": (1, "lines of our own log: one pass"),
    "service/supervision/jobs.py": (1, REQUEST),
    "jobs/reading/files.py": (2, "names of our own files, and errors of delta-rs: one pass"),
    "jobs/reading/listing.py": (3, REQUEST),
    "jobs/reading/quarantine.py": (2, "reasons, which have at most REASON_CHARACTERS_MAX"),
    "jobs/reading/savepoints.py": (1, REQUEST),
}


def test_only_the_listed_files_use_patterns_that_try_every_way() -> None:
    found: dict[str, int] = {}
    for folder in FOLDERS:
        for path in sorted((CHECKOUT / folder).rglob("*.py")):
            count = len(list(uses(path.read_text(encoding="utf-8"))))
            if count:
                found[path.relative_to(CHECKOUT).as_posix()] = count
    assert found == {path: count for path, (count, _) in ALLOWED.items()}


@pytest.mark.parametrize(
    "text",
    [
        "import re\nre.compile('a')",
        "import re as regex\nregex.compile('a')",
        "from re import compile\ncompile('a')",
        "def f(x):\n    import re\n    return re.sub('a', 'b', x)",
        "import re\nmatch = re.match",
    ],
)
def test_a_use_is_seen_however_it_is_written(text: str) -> None:
    assert list(uses(text))


def uses(text: str) -> Iterator[ast.AST]:
    """Yield what a source file takes from the module `re`; its flags are no use of it."""
    tree = ast.parse(text)
    names = {"re"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {each.asname or each.name for each in node.names if each.name == "re"}
        elif isinstance(node, ast.ImportFrom) and node.module == "re":
            yield node
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            taken = node.value.id in names and not node.attr.isupper()
            if taken and node.attr not in ("Match", "Pattern"):
                yield node


def test_no_code_hands_text_to_spark_as_sql() -> None:
    """The ways by which a text would be parsed by Spark are not called anywhere."""
    calls = []
    for source in [*CHECKOUT.glob("jobs/**/*.py"), *CHECKOUT.glob("service/**/*.py")]:
        for node in ast.walk(ast.parse(source.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            receiver = ast.unparse(node.func.value)
            banned = node.func.attr in ("expr", "selectExpr")
            if banned or (node.func.attr == "sql" and "spark" in receiver.lower()):
                where = f"{source.relative_to(CHECKOUT)}:{node.lineno}"
                calls.append(f"{where} {receiver}.{node.func.attr}")
    assert calls == []
