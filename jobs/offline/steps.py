"""Steps: JSON lines that say, one after the other, what happens to a job.

Each step is an object with one key that says what it is and others that belong to it. What is
wrong with a step is told with its number.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, TypeVar

Lines = Iterable[Mapping[str, Any] | str | bytes]
Step = TypeVar("Step")


class StepError(ValueError):
    """A step that is none; the message says which one, and what is wrong with it."""


def read_steps(
    steps: Lines,
    kinds: Mapping[str, Collection[str]],
    read: Callable[[str, Mapping[str, Any]], Step],
) -> Iterator[tuple[int, Step]]:
    """Steps with their numbers, as they are asked for.

    `kinds` has what decides the kind of a step, and what else it may carry then; `read` makes a
    step of them, and raises ValueError where it cannot.
    """
    lines = steps.splitlines() if isinstance(steps, str) else steps
    for number, line in enumerate(lines, 1):
        if isinstance(line, str | bytes) and not line.strip():
            continue
        try:
            step: Any = line
            if isinstance(line, str | bytes):
                step = json.loads(line, parse_float=Decimal)
            found = read(_kind(step, kinds), step)
        except ValueError as error:
            raise StepError(f"step {number}: {error}") from None
        yield number, found


def _kind(step: object, kinds: Mapping[str, Collection[str]]) -> str:
    if not isinstance(step, Mapping):
        raise ValueError(f'{step!r:.80} is not an object such as {{"clock": 200}}')
    found = [kind for kind in kinds if kind in step]
    if len(found) != 1:
        raise ValueError(f"has {found or 'none'} of {', '.join(kinds)}; one says what it is")
    kind = found[0]
    unknown = [str(key) for key in step if key != kind and key not in kinds[kind]]
    if unknown:
        raise ValueError(f"{unknown[0]!r} does not belong to a step with {kind!r}")
    return kind


def whole(step: Mapping[str, Any], key: str, *, least: int, default: int | None = None) -> int:
    """A whole number of 64 bits, at least `least`."""
    return whole_number(key, step.get(key, default), least=least)


def whole_number(what: str, value: object, *, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**63:
        bound = f", {least} or more" if least >= 0 else ""
        raise ValueError(f"{what} is {value!r:.80}; a whole number belongs there{bound}")
    return value


def only_true(step: Mapping[str, Any], key: str) -> None:
    if step[key] is not True:
        raise ValueError(f"{key} is true or not there")
