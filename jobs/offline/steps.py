"""Steps: JSON lines, each an event of a job, in order.

A step is an object. One of its keys is the kind of the step; the others are its fields. An error
names the number of the step.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from jobs.core.sql.select import QueryError
from schemas.spec.file import SpecError, load_spec
from schemas.spec.job import JobSpec
from schemas.types.json_types import JsonObject

Lines = Iterable[Mapping[str, Any] | str | bytes]
Output = JsonObject
Step = TypeVar("Step")


class StepError(ValueError):
    """A step is not valid; the message has its number and the problem."""


def print_run(
    run: Callable[[JobSpec, Lines], Iterable[Output]], spec_path: str, steps_path: str
) -> int:
    """Run a spec on a file of steps (`-`: standard input) and print the outputs.

    Return the exit code: 0, or 2 for a wrong spec, query or step. Other errors are raised.
    """
    try:
        spec = load_spec(Path(spec_path))
        with _open_steps(steps_path) as lines:
            for output in run(spec, lines):
                print(json.dumps(output, ensure_ascii=False))
    except (SpecError, QueryError, StepError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _open_steps(path: str) -> BinaryIO:
    """Open a file of steps as bytes: JSON is UTF-8 in every locale."""
    try:
        return sys.stdin.buffer if path == "-" else open(path, "rb")
    except OSError as error:
        raise StepError(f"{path}: cannot be read: {error.strerror or error}") from None


def read_steps(
    steps: Lines,
    kinds: Mapping[str, Collection[str]],
    read: Callable[[str, Mapping[str, Any]], Step],
) -> Iterator[tuple[int, Step]]:
    """Yield steps with their numbers.

    `kinds` has the key of each kind, and the other keys that it may have. `read` converts a kind
    and its object to a step, or raises ValueError.
    """
    # A text may have U+2028 and others inside of a line, at which `splitlines` would cut.
    lines = steps.split("\n") if isinstance(steps, str) else steps
    for number, line in enumerate(lines, 1):
        if isinstance(line, str | bytes) and not line.strip():
            continue
        try:
            step: Any = line
            if isinstance(line, str | bytes):
                step = json.loads(line, parse_float=Decimal)
            found = read(_find_kind(step, kinds), step)
        except (ValueError, RecursionError) as error:
            raise StepError(f"step {number}: {error}") from None
        yield number, found


def _find_kind(step: object, kinds: Mapping[str, Collection[str]]) -> str:
    if not isinstance(step, Mapping):
        raise ValueError(f'{step!r:.80} is not an object such as {{"clock": 200}}')
    found = [kind for kind in kinds if kind in step]
    if len(found) != 1:
        raise ValueError(f"has {found or 'none'} of {', '.join(kinds)}; write exactly one of them")
    kind = found[0]
    unknown = [str(key) for key in step if key != kind and key not in kinds[kind]]
    if unknown:
        raise ValueError(f"{unknown[0]!r} does not belong to a step with {kind!r}")
    return kind


def read_whole(step: Mapping[str, Any], key: str, *, least: int, default: int | None = None) -> int:
    """Return the whole number of a key: 64 bits, at least `least`."""
    return check_whole(key, step.get(key, default), least=least)


def check_whole(what: str, value: object, *, least: int) -> int:
    """Return `value` if it is a whole number of 64 bits, at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**63:
        bound = f", {least} or more" if least >= 0 else ""
        raise ValueError(f"{what} is {value!r:.80}; write a whole number{bound}")
    return value


def require_true(step: Mapping[str, Any], key: str) -> None:
    if step[key] is not True:
        raise ValueError(f"{key} is {step[key]!r:.80}; write true, or leave it out")
