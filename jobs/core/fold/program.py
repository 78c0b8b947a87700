"""Program: the fold of one plan as generated code, built once and specialised to its columns.

    consolidated rows ──gather──► one delta a group ──merge──► cells ──result──► result values

A delta is a list: [row count, first plus, heads, cells of the accumulators ..., multisets ...].
A value that has come or gone in a multiset changes the cells that count distinct ones; the code
that looks at the multiset puts that into the delta, before it is merged.

Print `Program(plan).source` (or run `retally plan SPEC`) to read what runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from jobs.core.aggregates import (
    FUNCTIONS,
    RUNTIME,
    Accumulator,
    Cell,
    Settled,
    Site,
    Storage,
    accumulators_of,
)
from jobs.core.evaluate.group_rows import GroupRows
from jobs.core.fold.state import HIDDEN, UNSHOWN, Group
from jobs.core.plan.tree import Aggregate, Plan
from jobs.core.values.change import Row, Value

NEVER = 1 << 62  # later than every position
ROW_COUNT, FIRST_PLUS, HEADS, FIRST_CELL = range(4)
LARGEST_LOST, SMALLEST_LOST = 1, 2
NO_KEY = object()
Delta = list[Any]
Cells = tuple[int, ...]
# New multiplicities; largest, smallest; what of them is lost; by how much multiplicities grew
# below zero.
Touched = tuple[dict[Value, int], Value, Value, int, int]


@dataclass(frozen=True, slots=True)
class _End:
    """An end of a multiset, of which the greatest or the least value may be shown."""

    name: str
    sign: str
    bit: int

    def reached(self, floating: bool) -> list[str]:
        """Lines of code for a value that is there."""
        beyond = f"value {self.sign} {self.name}"
        if floating:  # NaN is the greatest
            order = ("value", self.name) if self.sign == ">" else (self.name, "value")
            beyond = f"beats({', '.join(order)})"
        return [f"if {self.name} is None or {beyond}:", f"    {self.name} = value"]

    def left(self, floating: bool) -> list[str]:
        """Lines of code for a value that has gone."""
        was = f"was_{self.name}"
        same = f"value == {was}"
        if floating:  # NaN equals itself
            same = f"({same} or value != value and {was} != {was})"
        return [f"if {was} is not None and {same}:", f"    lost |= {self.bit}"]


_ENDS = (_End("largest", ">", LARGEST_LOST), _End("smallest", "<", SMALLEST_LOST))


def state_names(plan: Plan) -> set[str]:
    """Return the names of the columns that hold a plan's state in its table."""
    names = {f"image_{column.name}" for column in plan.image if plan.primary_key}
    for index, argument in enumerate(plan.arguments):
        kept = _accumulators(plan, index)
        names |= {cell.name for part in kept for cell in part.cells}
        if index == plan.instants or any(part.keeps_values for part in kept):
            names.add(f"value_{argument.name}")
    return names


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
        # Those, and the instants of sessions, which no fold of a group looks at.
        self.stored: tuple[int, ...] = (
            self.multisets if plan.instants is None else (*self.multisets, plan.instants)
        )
        self.extremes: tuple[tuple[int, bool], ...] = tuple(
            sorted(
                {
                    (aggregate.argument, FUNCTIONS[aggregate.function].extreme == "largest")
                    for aggregate in plan.aggregates
                    if aggregate.argument is not None and FUNCTIONS[aggregate.function].extreme
                }
            )
        )
        # Arguments with cells that follow from their multiset; arguments whose multiset is looked
        # into for a result.
        self.settled: frozenset[int] = frozenset(
            index
            for index in self.multisets
            if any(isinstance(part, Settled) for part in self.arguments[index])
        )
        self.looked_into: tuple[int, ...] = tuple(
            index
            for index in self.multisets
            if any(
                aggregate.argument == index
                and FUNCTIONS[aggregate.function].reading.looks_into_multiset
                for aggregate in plan.aggregates
            )
        )
        self._shown_at = {
            argument: (self._shown_by(argument, "largest"), self._shown_by(argument, "smallest"))
            for argument in self.multisets
        }
        self.floating_results = any(kind.floating for _, kind in plan.kept)
        self.rows = GroupRows(plan) if plan.computes else None
        touching = (self._touch(argument) for argument in self.multisets)
        functions = (self._gather(), self._restore(), self._merge(), *touching, self._result())
        self.source = "\n\n\n".join("\n".join(function) for function in functions)
        scope: dict[str, Any] = {"NEVER": NEVER, "NO_KEY": NO_KEY, "beats": beats, **RUNTIME}
        code = compile(self.source, f"<program {', '.join(plan.output)}>", "exec")
        exec(code, scope)  # noqa: S102 - made of a plan, in which names are letters and digits
        self.gather: Callable[..., dict[Any, Delta]] = scope["gather"]
        self.restore: Callable[..., None] = scope["restore"]
        self.merge: Callable[[Cells | None, Delta], Cells] = scope["merge"]
        self.touch: dict[int, Callable[..., Touched]] = {
            argument: scope[f"touch_{argument}"] for argument in self.multisets
        }
        self.result: Callable[..., tuple[Any, ...]] = scope["result"]

    def row(self, group: Group | None) -> Row | None:
        """The row that was last told of a group; None where none is to be seen."""
        if group is None or group.held in (UNSHOWN, HIDDEN):
            return None
        return group.result if self.rows is None else self.rows.row(group.result)

    def multiset_slot(self, argument: int) -> int:
        """Where in a delta the multiset of an argument is."""
        return FIRST_CELL + len(self.cells) - 1 + self.multisets.index(argument)

    def beginning(self) -> Delta:
        """A delta with nothing in it, which begins a group all the same."""
        delta: Delta = [0] * (FIRST_CELL + len(self.cells) - 1)
        delta[FIRST_PLUS], delta[HEADS] = 0, None
        return delta + [{} for _ in self.multisets]

    def places(self, argument: int) -> dict[Accumulator, range]:
        """Where in a group's cells the accumulators of an argument are."""
        found: dict[Accumulator, range] = {}
        for accumulator in self.arguments[argument]:
            start = self._cell_index(argument, accumulator)
            found[accumulator] = range(start, start + len(accumulator.cells))
        return found

    def shown(self, argument: int, result: Row | None) -> tuple[Value, Value]:
        """The largest and the smallest value of an argument that a result shows."""
        if result is None:
            return None, None
        largest, smallest = self._shown_at[argument]
        return (
            None if largest is None else result[largest],
            None if smallest is None else result[smallest],
        )

    def _shown_by(self, argument: int, word: str) -> int | None:
        """The aggregate whose result is an extreme of this argument."""
        for index, aggregate in enumerate(self.plan.aggregates):
            if aggregate.argument == argument and FUNCTIONS[aggregate.function].extreme == word:
                return index
        return None

    def _cell_index(self, argument: int, accumulator: Accumulator) -> int:
        index = 1
        for kept in self.arguments[:argument]:
            index += sum(len(part.cells) for part in kept)
        for part in self.arguments[argument]:
            if part == accumulator:
                return index
            index += len(part.cells)
        raise KeyError(accumulator)

    @property
    def _slots(self) -> list[str]:
        """The names of a delta's slots in generated code."""
        cells = [f"cell_{index}" for index in range(1, len(self.cells))]
        multisets = [f"multiset_{argument}" for argument in self.multisets]
        return ["row_count", "first_plus", "heads", *cells, *multisets]

    def _adding(self) -> list[str]:
        """Add one row with its weight; adding with -weight takes it back."""
        lines = ["row_count += weight"]
        for index, kept in enumerate(self.arguments):
            body: list[str] = []
            for accumulator in kept:
                start = self._cell_index(index, accumulator)
                names = [f"cell_{start + i}" for i in range(len(accumulator.cells))]
                body += accumulator.add(names, f"value_{index}", "weight")
            if index in self.multisets:
                count = f"multiset_{index}.get(value_{index}, 0) + weight"
                body.append(f"multiset_{index}[value_{index}] = {count}")
            if body:
                lines.append(f"if value_{index} is not None:  # {self.plan.arguments[index].name}")
                lines += [f"    {line}" for line in body]
        return lines

    def _gather(self) -> list[str]:
        columns = "".join(f"values_{index}, " for index in range(len(self.arguments)))
        values = "".join(f"value_{index}, " for index in range(len(self.arguments)))
        slots = ", ".join(self._slots)
        zeros = ["0" for _ in self.cells[1:]]
        fresh = ", ".join(["0", "NEVER", "None", *zeros, *("{}" for _ in self.multisets)])
        return [
            f"def gather(keys, {columns}positions, weights):",
            '    """Weighted rows become one delta a group; fast where a group comes together."""',
            "    deltas = {}",
            "    last = NO_KEY",
            f"    rows = zip(keys, {columns}positions, weights)",
            f"    for key, {values}position, weight in rows:",
            "        if key != last:",
            "            if last is not NO_KEY:",
            f"                deltas[last] = [{slots}]",
            "            last = key",
            "            if key in deltas:",
            f"                {slots} = deltas[key]",
            "            else:",
            f"                {slots} = {fresh}",
            "        if position < 0:",
            "            if heads is None:",
            "                heads = []",
            f"            heads.append((~position, {values}))",
            "        elif position < first_plus:",
            "            first_plus = position",
            *(f"        {line}" for line in self._adding()),
            "    if last is not NO_KEY:",
            f"        deltas[last] = [{slots}]",
            "    return deltas",
        ]

    def _restore(self) -> list[str]:
        values = "".join(f", value_{index}" for index in range(len(self.arguments)))
        slots = ", ".join(self._slots)
        return [
            f"def restore(delta{values}):",
            '    """Take back a retraction at the head of a group without accumulator."""',
            f"    {slots} = delta",
            "    weight = 1",
            *(f"    {line}" for line in self._adding()),
            f"    delta[:] = {slots}",
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

    def _touch(self, argument: int) -> list[str]:
        """Which entries of a multiset change, and what that does to the extremes that are shown."""
        named = self.plan.arguments[argument]
        settled = self._settled_cells(argument)
        ends = [
            end for end, at in zip(_ENDS, self._shown_at[argument], strict=True) if at is not None
        ]
        names = [end.name for end in ends]
        delta = ", delta" if settled else ""
        largest, smallest = (end.name if end in ends else "None" for end in _ENDS)
        lines = [
            f"def touch_{argument}(multiset, stored, largest, smallest{delta}):",
            f'    """What changes in the multiset of {named.name}."""',
            *([f"    {' = '.join(f'cell_{cell}' for cell in settled)} = 0"] if settled else []),
            *(f"    was_{name} = {name}" for name in names),
            "    changed = {}",
            "    find = stored.get",
            f"    {'grown = lost' if ends else 'grown'} = 0",
            "    for value, weight in multiset.items():",
            "        if weight == 0:",
            "            continue",
            "        old = find(value, 0)",
            "        changed[value] = new = old + weight",
            "        if new < 0 or old < 0:",
            "            grown += min(old, 0) - min(new, 0)",
            *(f"        {line}" for line in self._settling(argument)),
        ]
        if ends:
            floating = named.type.floating
            lines.append("        if new > 0:")
            for end in ends:
                lines += [f"            {line}" for line in end.reached(floating)]
            lines.append("        else:")
            for end in ends:
                lines += [f"            {line}" for line in end.left(floating)]
        lines += self._settle_delta(settled)
        for end in ends:
            lines += [f"    if {end.name} is not was_{end.name}:", f"        lost &= ~{end.bit}"]
        lost = "lost" if ends else "0"
        return [*lines, f"    return changed, {largest}, {smallest}, {lost}, grown"]

    def _settled_cells(self, argument: int) -> list[int]:
        """The cells of an argument that follow from its multiset."""
        found: list[int] = []
        for part in self.arguments[argument]:
            if isinstance(part, Settled):
                start = self._cell_index(argument, part)
                found += range(start, start + len(part.cells))
        return found

    def _settling(self, argument: int) -> list[str]:
        """What one entry's old and new multiplicity do to them."""
        lines: list[str] = []
        for part in self.arguments[argument]:
            if isinstance(part, Settled):
                start = self._cell_index(argument, part)
                names = [f"cell_{start + i}" for i in range(len(part.cells))]
                lines += part.settle(names, "value")
        return lines

    def _settle_delta(self, settled: Sequence[int]) -> list[str]:
        return [f"    delta[{FIRST_CELL + cell - 1}] = cell_{cell}" for cell in settled]

    def _result(self) -> list[str]:
        present = ", present" if self.looked_into else ""
        lines = [
            f"def result(cells, extremes, misfits{present}):",
            '    """The result values of a group; misfits[0] counts what its types cannot hold."""',
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
        for accumulator in _needed(self.plan, aggregate):
            start = self._cell_index(aggregate.argument, accumulator)
            cells += [f"cells[{start + i}]" for i in range(len(accumulator.cells))]
        present = ""
        if function.reading.looks_into_multiset:
            present = f"present[{self.looked_into.index(aggregate.argument)}]"
        return function.value(Site(target, cells, present, aggregate, argument.type))


def _accumulators(plan: Plan, argument: int) -> list[Accumulator]:
    """The accumulators that the aggregates over one argument share, each once."""
    needed: dict[Accumulator, None] = {}
    for aggregate in plan.aggregates:
        if aggregate.argument == argument:
            needed.update(dict.fromkeys(_needed(plan, aggregate)))
    return list(needed)


def _needed(plan: Plan, aggregate: Aggregate) -> tuple[Accumulator, ...]:
    assert aggregate.argument is not None
    named, function = plan.arguments[aggregate.argument], FUNCTIONS[aggregate.function]
    return accumulators_of(function, named.name, named.type, distinct=aggregate.distinct)


def beats(value: Any, other: Any) -> bool:
    """Whether a float is greater; NaN is the greatest."""
    if value != value:
        return bool(other == other)
    return bool(value > other)
