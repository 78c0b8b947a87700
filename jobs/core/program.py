"""Program: the fold of one plan as generated code, built once and specialised to its columns.

    consolidated rows ──gather──► one delta a group ──merge──► cells ──result──► result values

A delta is a list: [row count, first plus, heads, cells of the accumulators ..., multisets ...].
Print `Program(plan).source` (or run `retally plan SPEC`) to read what runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jobs.core.accumulators import FUNCTIONS, Accumulator, Cell, Storage, numbers
from jobs.core.plan import Aggregate, Plan

NEVER = 1 << 62  # later than every position
ROW_COUNT, FIRST_PLUS, HEADS, FIRST_CELL = range(4)
Delta = list[Any]
Cells = tuple[int, ...]


class Program:
    """The generated functions of a plan, and the layout of its accumulators."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.arguments = [_accumulators(plan, index) for index in range(len(plan.arguments))]
        own_cells = [cell for kept in self.arguments for part in kept for cell in part.cells]
        self.cells: tuple[Cell, ...] = (Cell("row_count", Storage.BIGINT), *own_cells)
        self.multisets: tuple[int, ...] = tuple(
            index
            for index, kept in enumerate(self.arguments)
            if any(accumulator.keeps_values for accumulator in kept)
        )
        self.extremes: tuple[tuple[int, bool], ...] = tuple(
            dict.fromkeys(
                (aggregate.argument, FUNCTIONS[aggregate.function].extreme == "largest")
                for aggregate in plan.aggregates
                if aggregate.argument is not None and FUNCTIONS[aggregate.function].extreme
            )
        )
        self.floating_results = any(aggregate.type.floating for aggregate in plan.aggregates)
        self.source = "\n\n\n".join(
            "\n".join(function)
            for function in (self._gather(), self._restore(), self._merge(), self._result())
        )
        scope: dict[str, Any] = {"NEVER": NEVER, **vars(numbers)}
        exec(compile(self.source, f"<program {', '.join(plan.output)}>", "exec"), scope)
        self.gather: Callable[..., dict[tuple[Any, ...], Delta]] = scope["gather"]
        self.restore: Callable[..., None] = scope["restore"]
        self.merge: Callable[[Cells | None, Delta], Cells] = scope["merge"]
        self.result: Callable[[Cells, Sequence[Any], list[int]], tuple[Any, ...]] = scope["result"]

    def multiset_slot(self, argument: int) -> int:
        """Where in a delta the multiset of an argument is."""
        return FIRST_CELL + len(self.cells) - 1 + self.multisets.index(argument)

    def shown_by(self, argument: int, largest: bool) -> int:
        """The aggregate whose result is this extreme."""
        word = "largest" if largest else "smallest"
        return next(
            index
            for index, aggregate in enumerate(self.plan.aggregates)
            if aggregate.argument == argument and FUNCTIONS[aggregate.function].extreme == word
        )

    def _cell_index(self, argument: int, accumulator: Accumulator) -> int:
        index = 1
        for kept in self.arguments[:argument]:
            index += sum(len(part.cells) for part in kept)
        for part in self.arguments[argument]:
            if part == accumulator:
                return index
            index += len(part.cells)
        raise KeyError(accumulator)

    def _adding(self) -> list[str]:
        """Add one row with its weight to `delta`; adding with -weight takes it back."""
        lines = [f"delta[{ROW_COUNT}] += weight"]
        for index, kept in enumerate(self.arguments):
            body: list[str] = []
            for accumulator in kept:
                start = self._cell_index(index, accumulator) - 1 + FIRST_CELL
                names = [f"delta[{start + i}]" for i in range(len(accumulator.cells))]
                body += accumulator.add(names, f"value_{index}", "weight")
            if index in self.multisets:
                slot = self.multiset_slot(index)
                body.append(f"multiset = delta[{slot}]")
                body.append(f"multiset[value_{index}] = multiset.get(value_{index}, 0) + weight")
            lines.append(f"if value_{index} is not None:  # {self.plan.arguments[index].name}")
            lines += [f"    {line}" for line in body]
        return lines

    def _gather(self) -> list[str]:
        columns = "".join(f"values_{index}, " for index in range(len(self.arguments)))
        values = "".join(f"value_{index}, " for index in range(len(self.arguments)))
        zeros = ["0" for _ in self.cells[1:]]
        fresh = ", ".join(["0", "NEVER", "None", *zeros, *("{}" for _ in self.multisets)])
        return [
            f"def gather(keys, {columns}positions, weights):",
            '    """Weighted rows become one delta a group."""',
            "    deltas = {}",
            "    find = deltas.get",
            f"    rows = zip(keys, {columns}positions, weights)",
            f"    for key, {values}position, weight in rows:",
            "        delta = find(key)",
            "        if delta is None:",
            f"            delta = deltas[key] = [{fresh}]",
            "        if position < 0:",
            f"            if delta[{HEADS}] is None:",
            f"                delta[{HEADS}] = []",
            f"            delta[{HEADS}].append((~position, {values}))",
            f"        elif position < delta[{FIRST_PLUS}]:",
            f"            delta[{FIRST_PLUS}] = position",
            *(f"        {line}" for line in self._adding()),
            "    return deltas",
        ]

    def _restore(self) -> list[str]:
        values = "".join(f", value_{index}" for index in range(len(self.arguments)))
        return [
            f"def restore(delta{values}):",
            '    """Take back a retraction at the head of a group without accumulator."""',
            "    weight = 1",
            *(f"    {line}" for line in self._adding()),
        ]

    def _merge(self) -> list[str]:
        slots = [ROW_COUNT, *range(FIRST_CELL, FIRST_CELL + len(self.cells) - 1)]
        fresh = ", ".join(f"delta[{slot}]" for slot in slots)
        merged = ", ".join(f"cells[{i}] + delta[{slot}]" for i, slot in enumerate(slots))
        return [
            "def merge(cells, delta):",
            '    """The cells of a group after its delta."""',
            "    if cells is None:",
            f"        return ({fresh},)",
            f"    return ({merged},)",
        ]

    def _result(self) -> list[str]:
        lines = [
            "def result(cells, extremes, misfits):",
            '    """The result values of a group; misfits[0] counts those its types cannot hold."""',
        ]
        for index, aggregate in enumerate(self.plan.aggregates):
            lines += [f"    {line}" for line in self._value(f"result_{index}", aggregate)]
        results = ", ".join(f"result_{index}" for index in range(len(self.plan.aggregates)))
        return [*lines, f"    return ({results},)" if results else "    return ()"]

    def _value(self, target: str, aggregate: Aggregate) -> list[str]:
        if aggregate.argument is None:
            return [f"{target} = cells[0]"]
        function = FUNCTIONS[aggregate.function]
        if function.extreme:
            which = (aggregate.argument, function.extreme == "largest")
            return [f"{target} = extremes[{self.extremes.index(which)}]"]
        argument = self.plan.arguments[aggregate.argument]
        cells = []
        for accumulator in function.needs(argument.name, argument.type):
            start = self._cell_index(aggregate.argument, accumulator)
            cells += [f"cells[{start + i}]" for i in range(len(accumulator.cells))]
        return function.value(target, cells, argument.type, aggregate.type)


def _accumulators(plan: Plan, argument: int) -> list[Accumulator]:
    """The accumulators that the aggregates over one argument share, each once."""
    named = plan.arguments[argument]
    needed: dict[Accumulator, None] = {}
    for aggregate in plan.aggregates:
        if aggregate.argument == argument:
            needs = FUNCTIONS[aggregate.function].needs(named.name, named.type)
            needed.update(dict.fromkeys(needs))
    return list(needed)
