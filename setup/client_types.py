"""Write the types of the Python client: `python -m setup.client_types`.

    schemas                    ──► client/retally/documents.pyi   fields of answers
    client.py, results.py      ──► client/retally/blocking.pyi    methods without coroutines

A test compares both with the files, so there is one definition of each.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from schemas.directory.quarantine import Quarantined
from schemas.documents import answers
from schemas.documents.explanation import Change, DifferingGroup, Explained

PACKAGE = Path(__file__).resolve().parents[1] / "client" / "retally"
_HEAD = '"""Made by setup/client_types.py; do not change it by hand."""\n\n'
# What answers of the client begin with; the structs of their fields follow.
ANSWERS: tuple[type[msgspec.Struct], ...] = (
    *(answers.Job, answers.Valid, answers.JobOffsets, answers.Watermarks),
    *(answers.LogLine, answers.PlanNode, answers.View, answers.Result, answers.Listing),
    *(Explained, Change, answers.History, DifferingGroup, answers.Savepoint),
    *(Quarantined, answers.Operation, answers.AuditLogLine, answers.Topics),
)
_TWINS = {
    "AsyncClient": "Client",
    "AsyncResults": "Results",
    "AsyncAnswer": "Answer",
    "AsyncFrames": "Frames",
    "AsyncGenerator": "Generator",
    "AsyncIterator": "Iterator",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
}


# --- answers ----------------------------------------------------------------------------------


def find_structs() -> list[type[msgspec.Struct]]:
    """Return the structs of all answers, each after those of its fields."""
    found: dict[type[msgspec.Struct], None] = {}

    def visit(kind: Any) -> None:
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind not in found:
            for each in get_type_hints(kind).values():
                visit(each)
            found[kind] = None
        for each in get_args(kind):
            visit(each)

    for answer in ANSWERS:
        visit(answer)
    return list(found)


def optional_fields() -> set[str]:
    """Return the fields that an answer may leave out."""
    return {
        field.encode_name
        for struct in find_structs()
        for field in msgspec.structs.fields(struct)
        if not field.required and field.encode_name != "from"
    }


def write_documents() -> str:
    lines = ["from typing import Any, Literal", "", "OPTIONAL: frozenset[str]", ""]
    # Without its __getattr__, so that a type checker sees a wrong name.
    lines += ["class Document(dict[str, Any]): ..."]
    lines += ["def parse_document(content: bytes) -> Any: ..."]
    for struct in find_structs():
        lines += ["", f"class {struct.__name__}(Document):"]
        if text := own_docstring(struct):
            lines += [f'    """{text}"""', ""]
        hints = get_type_hints(struct)
        for field in msgspec.structs.fields(struct):
            kind = _write_type(hints[field.name])
            if not field.required and "None" not in kind:
                kind += " | None"
            if field.encode_name != "from":  # a word of Python
                lines.append(f"    {field.encode_name}: {kind}")
    return _format(_HEAD + "\n".join(lines))


def own_docstring(struct: type) -> str | None:
    return struct.__dict__.get("__doc__")


def _write_type(kind: Any) -> str:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        written = [_write_type(each) for each in arguments]
        return " | ".join(dict.fromkeys(sorted(written, key=lambda each: each == "None")))
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, arguments))}]"
    if origin is not None:
        return f"{origin.__name__}[{', '.join(map(_write_type, arguments))}]"
    if kind in (NoneType, msgspec.UnsetType):
        return "None"
    return "Any" if kind is Any or not hasattr(kind, "__name__") else str(kind.__name__)


# --- methods ----------------------------------------------------------------------------------


class _Blocking(ast.NodeTransformer):
    """Turns definitions of coroutines into those of functions, without their bodies."""

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.body = [each for each in node.body if not self._is_private(each)]
        return self.generic_visit(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self.visit_FunctionDef(ast.FunctionDef(**vars(node)))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        document = ast.get_docstring(node, clean=False)
        ellipsis = ast.Expr(ast.Constant(...))
        node.body = [ellipsis if document is None else ast.Expr(ast.Constant(document))]
        node.decorator_list = [self.visit(each) for each in node.decorator_list]
        node.args = self.visit(node.args)
        node.returns = node.returns and self.visit(node.returns)
        return node

    @staticmethod
    def _is_private(node: ast.stmt) -> bool:
        name = getattr(node, "name", "")
        return name == "__init__" or (name.startswith("_") and not name.startswith("__"))


def write_blocking() -> str:
    """Return the definitions of the client's classes with functions instead of coroutines."""
    imports: list[str] = []
    classes: list[str] = []
    for name in ("results", "client"):
        tree = ast.parse((PACKAGE / f"{name}.py").read_text())
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                classes.append(ast.unparse(_Blocking().visit(node)))
            elif getattr(node, "module", "") == "retally.results":
                continue  # those are the classes
            elif isinstance(node, ast.ImportFrom | ast.Import):
                imports.append(ast.unparse(node))
            elif isinstance(node, ast.If):  # of type checking
                imports += map(ast.unparse, node.body)
    text = "\n".join([*imports, "from retally.results import Row", *classes])
    for name, twin in _TWINS.items():
        text = re.sub(rf"\b{name}\b", twin, text)
    return _format(_HEAD + text)


def _format(text: str) -> str:
    for command in (["check", "--select", "I,F401,UP043", "--fix", "-q"], ["format", "-q"]):
        name = ["--stdin-filename", str(PACKAGE / "made.pyi"), "-"]
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, *name],
            input=text,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        text = done.stdout
    return text


def write_all() -> dict[Path, str]:
    """Return the text of each file of types."""
    return {
        PACKAGE / "documents.pyi": write_documents(),
        PACKAGE / "blocking.pyi": write_blocking(),
    }


if __name__ == "__main__":
    for path, written in write_all().items():
        path.write_text(written)
