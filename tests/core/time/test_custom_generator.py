"""Generators that operators write: they may have any fields, and what they do wrong is named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from jobs.core.generators import Generator
from jobs.core.time.custom_generator import CustomGenerator, GeneratorFailed
from schemas.table.epoch import PartitionSnapshot


class Counting(Generator):
    """Has fields with the names that our own generators have."""

    def __init__(self) -> None:
        self.seen, self.last = 0, "none"

    def on_event(self, time: int | None, row: Mapping[str, Any], now: int) -> int | None:
        self.seen += 1
        self.last = row["name"]
        return 100 * self.seen

    def snapshot(self) -> Mapping[str, Any]:
        return {"seen": self.seen}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.seen = state.get("seen", 0)


class Wrong(Generator):
    """Does what its name says with what it is given."""

    def on_event(self, time: int | None, row: Mapping[str, Any], now: int) -> int | None:
        return row["answer"]  # type: ignore[no-any-return]

    def emit(self, now: int) -> int | None:
        raise RuntimeError("no clock")

    def snapshot(self) -> Mapping[str, Any]:
        return None  # type: ignore[return-value]


def test_the_fields_of_a_class_are_its_own() -> None:
    generator = CustomGenerator(Counting())
    assert generator.on_event(7, {"name": "a"}, 0) == 100
    assert generator.on_event(5, {"name": "b"}, 0) == 200
    assert (generator.seen, generator.last) == (7, 200)
    again = CustomGenerator(Counting())
    again.restore(generator.snapshot())
    assert again.on_event(1, {"name": "c"}, 0) == 300


def test_a_class_without_methods_emits_nothing() -> None:
    generator = CustomGenerator(Generator())
    assert generator.on_event(7, {}, 0) is None
    assert generator.on_mark(7, {}, 0) is None
    assert generator.emit(9) is None
    assert generator.snapshot() == PartitionSnapshot(seen=7, own={})


def test_an_exception_is_named_with_class_method_line_and_row() -> None:
    with pytest.raises(GeneratorFailed) as failed:
        CustomGenerator(Wrong()).on_event(7, {"name": "bolt"}, 0)
    named = f"the generator class {__name__}:Wrong: on_event failed: KeyError: 'answer'"
    assert str(failed.value).startswith(f"{named} (test_custom_generator.py, line ")
    assert '{"name": "bolt"}' in str(failed.value)
    with pytest.raises(GeneratorFailed, match="emit failed: RuntimeError: no clock"):
        CustomGenerator(Wrong()).emit(0)


def test_a_wrong_answer_is_named_too() -> None:
    generator = CustomGenerator(Wrong())
    assert generator.on_event(7, {"answer": 5}, 0) == 5
    with pytest.raises(GeneratorFailed, match="on_event returned '5', which is not a whole number"):
        generator.on_event(7, {"answer": "5"}, 0)
    with pytest.raises(GeneratorFailed, match="snapshot returned None, which is not an object"):
        generator.snapshot()
