"""Program: the fold of one plan as generated code, specialised to the plan's columns.

    consolidated rows ──gather──► one delta a group ──merge──► cells ──result──► result values
                                      │                          ▲
                                      └──update_multiset─────────┘ entry cells

A delta is a list: [row count, first plus, heads, cells of the accumulators ..., multisets ...].
Heads are retractions before the first +I or +U of their row in a range; the fold drops those before
the first +I or +U of the group, which is at position `first plus`.
Entry cells (COUNT DISTINCT, ...) follow from the multiplicities of a multiset: `update_multiset`
compares old and new multiplicities and writes these cells into the delta before it is merged.

Print `Program(plan).source` (or run `retally plan SPEC`) to read what runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from jobs.core.aggregates import (
    FUNCTIONS,
    RUNTIME,
    Accumulator,
    Cell,
    EntryAccumulator,
    Site,
    Storage,
    accumulators_of,
    clock_of_timers,
)
from jobs.core.evaluate.expressions import GroupRows
from jobs.core.fold.state import Clock, Group
from jobs.core.plan.tree import Aggregate, Plan
from jobs.core.values.change import Row, Value

NEVER = 1 << 62  # later than every position
ROW_COUNT, FIRST_PLUS, HEADS, FIRST_CELL = range(4)
LARGEST_RETRACTED, SMALLEST_RETRACTED = 1, 2  # bits of MultisetChange.retracted
NO_KEY = object()
Delta = list[Any]
Cells = tuple[int, ...]


class MultisetChange(NamedTuple):
    """The effect of a delta on one multiset of a group.

    `largest` and `smallest` are the emitted extremes, or new values beyond them. `retracted` has
    the bit of each emitted extreme that was retracted and not replaced by a new value: then the
    next value is still to be found (GroupResults.find_extremes).
    """

    counts: dict[Value, int]  # new multiplicities of the changed values
    largest: Value
    smallest: Value
    retracted: int
    unmatched: int  # by how much multiplicities sank further below zero


# Arguments: the delta of a group, stored multiplicities, emitted largest and smallest value.
UpdateMultiset = Callable[[Delta, Mapping[Value, int], Value, Value], MultisetChange]


@dataclass(frozen=True, slots=True)
class _Extreme:
    """One end of a multiset: generates the code that follows its greatest or smallest value."""

    name: str
    sign: str
    bit: int

    def replace_lines(self, floating: bool) -> list[str]:
        """Return code that replaces the extreme if a present value is beyond it."""
        beyond = f"value {self.sign} {self.name}"
        if floating:  # NaN is the greatest
            order = ("value", self.name) if self.sign == ">" else (self.name, "value")
            beyond = f"is_greater({', '.join(order)})"
        return [f"if {self.name} is None or {beyond}:", f"    {self.name} = value"]

    def retract_lines(self, floating: bool) -> list[str]:
        """Return code that notes that the emitted extreme is no longer present."""
        emitted = f"emitted_{self.name}"
        same = f"value == {emitted}"
        if floating:  # NaN equals itself
            same = f"({same} or value != value and {emitted} != {emitted})"
        return [f"if {emitted} is not None and {same}:", f"    retracted |= {self.bit}"]


_EXTREMES = (
    _Extreme("largest", ">", LARGEST_RETRACTED),
    _Extreme("smallest", "<", SMALLEST_RETRACTED),
)


def state_names(plan: Plan) -> set[str]:
    """Return the names of the columns that hold a plan's state in its table."""
    names = {f"image_{column.name}" for column in plan.image if plan.primary_key}
    for index, argument in enumerate(plan.arguments):
        kept = _accumulators(plan, index)
        names |= {cell.name for part in kept for cell in part.cells}
        if index == plan.instants_argument or any(part.keeps_values for part in kept):
            names.add(f"value_{argument.name}")
    return names


class Program:
    """The generated functions of a plan, and the layout of its accumulators."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        clock = clock_of_timers(plan)
        self.clock = None if clock is None else Clock(clock)  # of the timers of its classes
        self.arguments = [_accumulators(plan, index) for index in range(len(plan.arguments))]
        own_cells = [cell for kept in self.arguments for part in kept for cell in part.cells]
        self.cells: tuple[Cell, ...] = (Cell("row_count", Storage.BIGINT), *own_cells)
        self.multisets: tuple[int, ...] = tuple(
            index
            for index, kept in enumerate(self.arguments)
            if any(accumulator.keeps_values for accumulator in kept)
        )
        # Those, and the instants of sessions, which the fold of a group does not read.
        self.stored: tuple[int, ...] = (
            self.multisets
            if plan.instants_argument is None
            else (*self.multisets, plan.instants_argument)
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
        # Arguments whose multiset is scanned to compute a result.
        self.scanned: tuple[int, ...] = tuple(
            index
            for index in self.multisets
            if any(
                aggregate.argument == index
                and FUNCTIONS[aggregate.function].read_cost.reads_multiset
                for aggregate in plan.aggregates
            )
        )
        self._extreme_results = {
            argument: (
                self._find_extreme(argument, "largest"),
                self._find_extreme(argument, "smallest"),
            )
            for argument in self.multisets
        }
        self.floating_results = any(kind.floating for _, kind in plan.kept_results)
        self.rows = GroupRows(plan) if plan.has_computed else None
        functions = (
            self._gather_function(),
            self._undo_retraction_function(),
            self._merge_function(),
            *map(self._update_multiset_function, self.multisets),
            self._result_function(),
        )
        self.source = "\n\n\n".join("\n".join(function) for function in functions)
        scope = self._compile()
        self.gather: Callable[..., dict[Any, Delta]] = scope["gather"]
        self.undo_retraction: Callable[..., None] = scope["undo_retraction"]
        self.merge: Callable[[Cells | None, Delta], Cells] = scope["merge"]
        self.update_multiset: dict[int, UpdateMultiset] = {
            argument: scope[f"update_multiset_{argument}"] for argument in self.multisets
        }
        self.result: Callable[..., tuple[Any, ...]] = scope["result"]

    def _compile(self) -> dict[str, Any]:
        """Return the generated functions by name."""
        scope: dict[str, Any] = {
            "NEVER": NEVER,
            "NO_KEY": NO_KEY,
            "MultisetChange": MultisetChange,
            "is_greater": is_greater,
            **RUNTIME,
        }
        code = compile(self.source, f"<program {', '.join(self.plan.output)}>", "exec")
        exec(code, scope)  # noqa: S102 - from a plan, in which names are letters and digits
        return scope

    def row(self, group: Group | None) -> Row | None:
        """Return the row of a group that readers of the changelog see, or None."""
        if group is None or not group.has_row:
            return None
        return group.result if self.rows is None else self.rows.select(group.result)

    def multiset_slot(self, argument: int) -> int:
        """Return the index of an argument's multiset in a delta."""
        return FIRST_CELL + len(self.cells) - 1 + self.multisets.index(argument)

    def empty_delta(self) -> Delta:
        """Return a delta that changes nothing but starts a group."""
        delta: Delta = [0] * (FIRST_CELL + len(self.cells) - 1)
        delta[FIRST_PLUS], delta[HEADS] = 0, None
        return delta + [{} for _ in self.multisets]

    def cell_ranges(self, argument: int) -> dict[Accumulator, range]:
        """Return the indexes of each accumulator of an argument in a group's cells."""
        ranges: dict[Accumulator, range] = {}
        for accumulator in self.arguments[argument]:
            start = self._cell_index(argument, accumulator)
            ranges[accumulator] = range(start, start + len(accumulator.cells))
        return ranges

    def emitted_extremes(self, argument: int, result: Row | None) -> tuple[Value, Value]:
        """Return the largest and the smallest value of an argument in an emitted result."""
        if result is None:
            return None, None
        largest, smallest = self._extreme_results[argument]
        return (
            None if largest is None else result[largest],
            None if smallest is None else result[smallest],
        )

    def _find_extreme(self, argument: int, extreme: str) -> int | None:
        """Return the index of the aggregate whose result is this extreme of an argument."""
        for index, aggregate in enumerate(self.plan.aggregates):
            if aggregate.argument == argument and FUNCTIONS[aggregate.function].extreme == extreme:
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
        """The names of a delta's items in generated code."""
        cells = [f"cell_{index}" for index in range(1, len(self.cells))]
        multisets = [f"multiset_{argument}" for argument in self.multisets]
        return ["row_count", "first_plus", "heads", *cells, *multisets]

    def _add_lines(self) -> list[str]:
        """Return code that adds one row with its weight; adding -weight undoes it."""
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

    def _gather_function(self) -> list[str]:
        columns = "".join(f"values_{index}, " for index in range(len(self.arguments)))
        values = "".join(f"value_{index}, " for index in range(len(self.arguments)))
        slots = ", ".join(self._slots)
        zeros = ["0" for _ in self.cells[1:]]
        fresh = ", ".join(["0", "NEVER", "None", *zeros, *("{}" for _ in self.multisets)])
        return [
            f"def gather(keys, {columns}positions, weights):",
            '    """Add weighted rows to a delta per group; fastest if the rows come by group."""',
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
            *(f"        {line}" for line in self._add_lines()),
            "    if last is not NO_KEY:",
            f"        deltas[last] = [{slots}]",
            "    return deltas",
        ]

    def _undo_retraction_function(self) -> list[str]:
        values = "".join(f", value_{index}" for index in range(len(self.arguments)))
        slots = ", ".join(self._slots)
        return [
            f"def undo_retraction(delta{values}):",
            '    """Undo a retraction at the head of a group without accumulator."""',
            f"    {slots} = delta",
            "    weight = 1",
            *(f"    {line}" for line in self._add_lines()),
            f"    delta[:] = {slots}",
        ]

    def _merge_function(self) -> list[str]:
        slots = [ROW_COUNT, *range(FIRST_CELL, FIRST_CELL + len(self.cells) - 1)]
        fresh = ", ".join(f"delta[{slot}]" for slot in slots)
        merged = ", ".join(f"cells[{i}] + delta[{slot}]" for i, slot in enumerate(slots))
        return [
            "def merge(cells, delta):",
            '    """Return the cells of a group after its delta."""',
            "    if cells is None:",
            f"        return ({fresh},)",
            f"    return ({merged},)",
        ]

    def _update_multiset_function(self, argument: int) -> list[str]:
        """Generate the update of one multiset: new multiplicities, entry cells and extremes."""
        named = self.plan.arguments[argument]
        entry_cells = self._entry_cells(argument)
        extremes = [
            extreme
            for extreme, index in zip(_EXTREMES, self._extreme_results[argument], strict=True)
            if index is not None
        ]
        largest, smallest = (each.name if each in extremes else "None" for each in _EXTREMES)
        lines = [
            f"def update_multiset_{argument}(delta, stored, largest, smallest):",
            f'    """Return the changes of the multiset of {named.name}."""',
            *(f"    cell_{cell} = 0" for cell in entry_cells),
            *(f"    emitted_{extreme.name} = {extreme.name}" for extreme in extremes),
            "    counts = {}",
            "    find = stored.get",
            f"    {'unmatched = retracted' if extremes else 'unmatched'} = 0",
            f"    for value, weight in delta[{self.multiset_slot(argument)}].items():",
            "        if weight == 0:",
            "            continue",
            "        old = find(value, 0)",
            "        counts[value] = new = old + weight",
            "        if new < 0 or old < 0:",
            "            unmatched += min(old, 0) - min(new, 0)",
            *(f"        {line}" for line in self._entry_lines(argument)),
        ]
        if extremes:
            floating = named.type.floating
            lines.append("        if new > 0:")
            for extreme in extremes:
                lines += [f"            {line}" for line in extreme.replace_lines(floating)]
            lines.append("        else:")
            for extreme in extremes:
                lines += [f"            {line}" for line in extreme.retract_lines(floating)]
        lines += [f"    delta[{FIRST_CELL + cell - 1}] = cell_{cell}" for cell in entry_cells]
        for extreme in extremes:
            lines += [
                f"    if {extreme.name} is not emitted_{extreme.name}:",
                f"        retracted &= ~{extreme.bit}",
            ]
        retracted = "retracted" if extremes else "0"
        values = f"counts, {largest}, {smallest}, {retracted}, unmatched"
        return [*lines, f"    return MultisetChange({values})"]

    def _entry_cells(self, argument: int) -> list[int]:
        """Return the indexes of an argument's cells that follow from its multiplicities."""
        indexes: list[int] = []
        for part in self.arguments[argument]:
            if isinstance(part, EntryAccumulator):
                start = self._cell_index(argument, part)
                indexes += range(start, start + len(part.cells))
        return indexes

    def _entry_lines(self, argument: int) -> list[str]:
        """Return code that updates these cells for one entry's old and new multiplicity."""
        lines: list[str] = []
        for part in self.arguments[argument]:
            if isinstance(part, EntryAccumulator):
                start = self._cell_index(argument, part)
                names = [f"cell_{start + i}" for i in range(len(part.cells))]
                lines += part.add_entry(names, "value")
        return lines

    def _result_function(self) -> list[str]:
        more = (", present" if self.scanned else "") + (", clock" if self.clock else "")
        lines = [
            f"def result(cells, extremes, misfits{more}):",
            '    """Return the result of a group; misfits[0] counts values beyond their type."""',
        ]
        row = ""
        for index, aggregate in enumerate(self.plan.aggregates):
            for line in self._value_lines(f"result_{index}", aggregate):
                if line.startswith("row = ") and line == row:
                    continue  # of the same row as the value before
                row = line if line.startswith("row = ") else row
                lines.append(f"    {line}")
        results = ", ".join(f"result_{index}" for index in range(len(self.plan.aggregates)))
        return [*lines, f"    return ({results},)" if results else "    return ()"]

    def _value_lines(self, target: str, aggregate: Aggregate) -> list[str]:
        """Return code that sets `target` to the value of an aggregate."""
        if aggregate.argument is None:
            return [f"{target} = cells[0]"]
        function = FUNCTIONS[aggregate.function]
        if function.extreme:
            which = (aggregate.argument, function.extreme == "largest")
            return [f"{target} = extremes[{self.extremes.index(which)}]"]
        argument = self.plan.arguments[aggregate.argument]
        cells = []
        for accumulator in needed_accumulators(self.plan, aggregate):
            start = self._cell_index(aggregate.argument, accumulator)
            cells += [f"cells[{start + i}]" for i in range(len(accumulator.cells))]
        present = ""
        if function.read_cost.reads_multiset:
            present = f"present[{self.scanned.index(aggregate.argument)}]"
        return function.value(Site(target, cells, present, aggregate, argument.type))


def _accumulators(plan: Plan, argument: int) -> list[Accumulator]:
    """Return the accumulators that the aggregates over one argument share, each once."""
    needed: dict[Accumulator, None] = {}
    for aggregate in plan.aggregates:
        if aggregate.argument == argument:
            needed.update(dict.fromkeys(needed_accumulators(plan, aggregate)))
    return list(needed)


def needed_accumulators(plan: Plan, aggregate: Aggregate) -> tuple[Accumulator, ...]:
    """Return the accumulators that the value of an aggregate is computed from."""
    assert aggregate.argument is not None
    named, function = plan.arguments[aggregate.argument], FUNCTIONS[aggregate.function]
    return accumulators_of(function, named.name, named.type, distinct=aggregate.distinct)


def is_greater(value: Any, other: Any) -> bool:
    """Return whether a float is greater than another; NaN is the greatest."""
    if value != value:
        return bool(other == other)
    return bool(value > other)


def is_empty(program: Program, delta: Delta) -> bool:
    """Return whether a delta changes nothing."""
    if delta[ROW_COUNT]:
        return False
    cells_end = FIRST_CELL + len(program.cells) - 1
    return not any(delta[FIRST_CELL:cells_end]) and not any(
        any(multiset.values()) for multiset in delta[cells_end:]
    )


def drop_heads(program: Program, delta: Delta) -> int:
    """Drop the retractions before the first +I or +U of a group; return how many."""
    dropped = 0
    for position, *values in delta[HEADS]:
        if position < delta[FIRST_PLUS]:
            program.undo_retraction(delta, *values)
            dropped += 1
    return dropped


def starts_group(delta: Delta) -> bool:
    """Return whether a delta starts a group that withholds results and drops heads.

    A +I or +U starts one, even if a later retraction cancels it.
    """
    return bool(delta[FIRST_PLUS] < NEVER)
