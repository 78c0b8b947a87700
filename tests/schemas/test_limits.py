"""Limits: `schemas.limits` stands for its modules, so each name is in one of them only."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

from schemas import limits

MODULES = sorted(Path(limits.__file__).parent.glob("[a-z]*.py"))


def names_of(module: Path) -> list[str]:
    return [
        target.id
        for statement in ast.parse(module.read_text(encoding="utf-8")).body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name)
    ]


def test_every_limit_is_in_one_module_and_in_the_package() -> None:
    counts = Counter(name for module in MODULES for name in names_of(module))
    assert len(counts) > 150
    assert [name for name, count in counts.items() if count > 1] == []
    assert [name for name in counts if not hasattr(limits, name)] == []
