"""Watermark generators that operators write: their base class, and what calls them.

    partition ──► CustomGenerator ──► an operator's class, which may raise or return anything
                   │ remembers its last watermark, so that none goes back
                   └ GeneratorFailed: the class, the method, the line, the row

The base class has no fields, so a subclass may have any.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from jobs.core.time.watermark_generators import PartitionGenerator, latest_of
from schemas.failures.catalogue import CodedError
from schemas.limits import REASON_CHARACTERS_MAX
from schemas.spec.watermark import Watermark
from schemas.table.epoch import PartitionSnapshot

_ROW_CHARACTERS_MAX = REASON_CHARACTERS_MAX // 2


class GeneratorFailed(CodedError, code="generator-failed"):
    """An operator's generator class raised an exception; with the same input it will again."""


class Generator:
    """Base class of operators' generators; it emits no watermark and stores nothing."""

    @classmethod
    def of(cls, watermark: Watermark) -> Generator:
        """Create a generator for one partition; override this to read settings of the spec."""
        return cls()

    def on_event(self, time: int | None, row: Mapping[str, Any], now: int) -> int | None:
        """Observe one row; return a watermark if it emits one at once."""
        return self.observe(time, None, now)

    def on_mark(self, time: int | None, row: Mapping[str, Any], now: int) -> int | None:
        """Observe the mark in the row of the last `on_event`; `time` is what the mark carries."""
        return self.observe(None, time, now)

    def observe(self, latest: int | None, marked: int | None, now: int) -> int | None:
        """Observe the time of a row or of a mark, for classes that need no more."""
        return None

    def emit(self, now: int) -> int | None:
        """Return the periodic watermark; None if there is none."""
        return None

    def snapshot(self) -> Mapping[str, Any]:
        """Return the state as JSON values; it goes from epoch to epoch and over a restart."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue with the state that `snapshot` returned, or with {}."""


class CustomGenerator(PartitionGenerator):
    """Calls an operator's generator, so that its watermark never goes back."""

    __slots__ = ("_custom",)

    def __init__(self, custom: Generator) -> None:
        super().__init__()
        self._custom = custom

    def observe(self, latest: int | None, marked: int | None, now: int) -> int | None:
        super().observe(latest, None, now)
        return self._raise_to(self._read_watermark(self._custom.observe, latest, marked, now))

    def on_event(self, time: int | None, row: Mapping[str, Any], now: int) -> int | None:
        self.seen = latest_of(self.seen, time)
        return self._raise_to(self._read_watermark(self._custom.on_event, time, row, now, row=row))

    def on_mark(self, time: int | None, row: Mapping[str, Any], now: int) -> int | None:
        return self._raise_to(self._read_watermark(self._custom.on_mark, time, row, now, row=row))

    def _candidate(self, now: int) -> int | None:
        return self._read_watermark(self._custom.emit, now)

    def snapshot(self) -> PartitionSnapshot:
        own = call_class(self._custom.snapshot)
        if not isinstance(own, Mapping):
            raise _make_wrong_answer(self._custom.snapshot, own, "an object of JSON values")
        return replace(super().snapshot(), own=dict(own))

    def restore(self, state: PartitionSnapshot) -> None:
        super().restore(state)
        call_class(self._custom.restore, state.own or {})

    @staticmethod
    def _read_watermark(method: Callable[..., Any], *arguments: Any, row: Any = None) -> int | None:
        """Return the watermark that a method of the class returns."""
        found = call_class(method, *arguments, row=row)
        if found is not None and not isinstance(found, int):
            raise _make_wrong_answer(method, found, "a whole number of milliseconds or None")
        return found


def call_class(
    method: Callable[..., Any], *arguments: Any, row: Mapping[str, Any] | None = None
) -> Any:
    """Call a method of an operator's class; raise GeneratorFailed if it raises."""
    try:
        return method(*arguments)
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        file = last.filename.replace("\\", "/").rpartition("/")[2]
        what = f"{type(error).__name__}: {error} ({file}, line {last.lineno})"
        shown = f"; the row: {json.dumps(row, default=str)[:_ROW_CHARACTERS_MAX]}" if row else ""
        raise GeneratorFailed(
            f"{_name(method)} failed: {what}{shown}; correct the class, then start the job"
        ) from error


def _make_wrong_answer(method: Callable[..., Any], found: Any, wanted: str) -> GeneratorFailed:
    return GeneratorFailed(
        f"{_name(method)} returned {repr(found)[:80]}, which is not {wanted}; correct the class, "
        "then start the job"
    )


def _name(method: Any) -> str:
    """Return the class and the name of a bound method as specs write the class."""
    owner = method.__self__ if isinstance(method.__self__, type) else type(method.__self__)
    return f"the generator class {owner.__module__}:{owner.__qualname__}: {method.__name__}"
