"""Explain why a group's MAX or MIN changed: the retracted value, its source, what is left.

    changelog of the group ──► each extreme, epoch by epoch ──► extreme changes
    entries of its multisets, with the epochs that wrote them ──┐
    epoch rows ──► the offsets that were read ──────────────────┴──► the cause, in a sentence

Nothing here is guessed. If a MAX decreased, every row with the old value must have been retracted.
How many rows these were, and the number of remaining values, is reported only if the table still
has them separately from older and newer changes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from jobs.core.explain.explanation import ranges_between
from jobs.core.plan.tree import Plan
from jobs.core.values.change import Value
from jobs.core.values.json_values import Json, parser
from jobs.core.values.order_key import value_encoder
from schemas.documents.explanation import Explained, GroupChange, GroupEpoch, OffsetRanges
from schemas.table.epoch import RESTART_KINDS, EpochRow
from schemas.types.sql_types import SqlType

_EXTREMES = {"MAX": True, "MIN": False}  # whether the result is the greatest value
JsonRow = Mapping[str, Json]
Format = Callable[[Any], str]


class MultisetEntry(NamedTuple):
    """The multiplicity of a value of a group's argument, as an epoch wrote it."""

    argument: int
    value: Value
    epoch: int
    multiplicity: int


class ValueChange(NamedTuple):
    """The multiplicity of a value before and after some epochs."""

    value: Value
    before: int
    after: int


class MultisetHistory:
    """The multisets of one group over the epochs, from all `entries` that the table still has.

    Up to the epoch `merged_until` the table has merged them, so only their newest state is known. A
    multiset may be long, and callers ask about many epochs: finding the changes of an epoch does
    not scan the whole multiset.
    """

    def __init__(self, entries: Iterable[MultisetEntry], merged_until: int) -> None:
        self.merged_until = merged_until
        self._histories: dict[int, dict[Value, list[tuple[int, int]]]] = {}
        self._written: dict[int, list[tuple[int, Value]]] = {}  # by epoch
        self._sizes: dict[int, list[tuple[int, int]]] = {}  # epoch, number of values from then on
        for argument, value, epoch, multiplicity in sorted(entries, key=lambda each: each.epoch):
            history = self._histories.setdefault(argument, {}).setdefault(value, [])
            before = history[-1][1] if history else 0
            history.append((epoch, multiplicity))
            self._written.setdefault(argument, []).append((epoch, value))
            sizes = self._sizes.setdefault(argument, [])
            size = sizes[-1][1] if sizes else 0
            sizes.append((epoch, size + max(multiplicity, 0) - max(before, 0)))

    def size(self, argument: int, epoch: int) -> int | None:
        """Return the number of values after an epoch, with multiplicities; None if unknown."""
        return (
            None if epoch < self.merged_until else _value_at(self._sizes.get(argument, ()), epoch)
        )

    def steps(self, argument: int, since: int, epoch: int) -> list[ValueChange] | None:
        """Return the changes of the epochs (since, epoch]; None if they are unknown."""
        if since < self.merged_until:
            return None
        written = self._written.get(argument, ())
        first = bisect_right(written, since, key=_epoch)
        last = bisect_right(written, epoch, key=_epoch)
        histories = self._histories.get(argument, {})
        values = dict.fromkeys(value for _, value in written[first:last])
        states = ((value, histories[value]) for value in values)
        changes = (ValueChange(v, _value_at(h, since), _value_at(h, epoch)) for v, h in states)
        return [change for change in changes if change.before != change.after]


def _epoch(written: tuple[int, Value]) -> int:
    return written[0]


def _value_at(history: Sequence[tuple[int, int]], epoch: int) -> int:
    """Return the value of a history after an epoch; 0 before its first entry."""
    index = bisect_right(history, epoch, key=lambda each: each[0])
    return history[index - 1][1] if index else 0


@dataclass(frozen=True, slots=True)
class ExtremeColumn:
    """A result column that is the greatest or the smallest value of an argument."""

    column: str
    argument: int
    type: SqlType
    greatest: bool

    def sort_key(self, value: Json) -> bytes:
        """Return bytes that sort as the values of the column do."""
        return value_encoder(self.type)(self.parse(value))

    def parse(self, value: Json) -> Value:
        """Return a rendered value as a value of the column."""
        return None if value is None else parser(self.type)(value)

    def needs_retraction(self, before: Json, after: Json) -> bool:
        """Return whether this change of the column means that the old value was retracted."""
        if before is None or before == after:
            return False
        if after is None:
            return True
        return (self.sort_key(after) < self.sort_key(before)) == self.greatest


def extreme_columns(plan: Plan) -> list[ExtremeColumn]:
    """Return the result columns that are a MAX or a MIN."""
    return [
        ExtremeColumn(each.name, each.argument, each.type, _EXTREMES[each.function])
        for each in plan.aggregates
        if each.function in _EXTREMES and each.argument is not None and each.name in plan.output
    ]


@dataclass(frozen=True, slots=True)
class ExtremeChange:
    """A change of an extreme column in an epoch."""

    extreme: ExtremeColumn
    epoch: int
    before: Json
    after: Json
    retracted: bool  # the old value must have been retracted


def find_extreme_changes(plan: Plan, epochs: Iterable[GroupEpoch]) -> list[ExtremeChange]:
    """Return the extreme changes of a group, oldest first."""
    found = []
    columns = extreme_columns(plan)
    for epoch in epochs:
        old, new = _first_and_last(epoch.changes)
        if old is None or new is None:
            continue
        for extreme in columns:
            before, after = old[extreme.column], new[extreme.column]
            if before != after:
                retracted = extreme.needs_retraction(before, after)
                found.append(ExtremeChange(extreme, epoch.epoch, before, after, retracted))
    return found


def _first_and_last(changes: Sequence[GroupChange]) -> tuple[JsonRow | None, JsonRow | None]:
    """Return the rows of a group before and after an epoch."""
    if not changes:
        return None, None
    first, last = changes[0], changes[-1]
    return (None if first.op == "+I" else first.row), (None if last.op == "-D" else last.row)


@dataclass(frozen=True, slots=True)
class Cause:
    """The known facts about an extreme change."""

    kind: str  # of the epoch: data, time, rewind, evolve ...; "" if unknown
    since: int | None  # the epochs (since, epoch] caused the change
    read: OffsetRanges | None  # the offsets that they read; None if unknown
    taken: int | None  # how often the old value was retracted; None if unknown
    beyond: int | None  # the number of retracted values between the old and the new one
    left: int | None  # the number of remaining values; the new one is their extreme
    newest: bool  # whether the group was not written since


def find_cause(
    change: ExtremeChange,
    multisets: MultisetHistory,
    rows: Mapping[int, EpochRow],
    changed: int | None,
) -> Cause:
    """Return the cause of a change. `rows` are epoch rows; `changed` wrote the group last."""
    row = rows.get(change.epoch)
    since = epoch_before(rows, change.epoch)
    read = None
    if row is not None and since is not None and row.kind not in RESTART_KINDS:
        read = ranges_between(rows[since].offsets, row.offsets)
    taken = beyond = None
    if since is not None and change.retracted:
        steps = multisets.steps(change.extreme.argument, since, change.epoch)
        taken, beyond = _count_retracted(change, steps or [])
    left = multisets.size(change.extreme.argument, change.epoch)
    return Cause(
        kind="" if row is None else row.kind,
        since=since,
        read=read,
        taken=taken,
        beyond=beyond,
        left=left or None,
        newest=changed is not None and changed <= change.epoch,
    )


def epoch_before(rows: Mapping[int, EpochRow], epoch: int) -> int | None:
    """Return the epoch after which the changes of an epoch began; None if it is unknown.

    It is the previous epoch, or under the event clock the last one that withheld nothing."""
    since = epoch - 1
    while since in rows and rows[since].withholds:
        since -= 1
    return since if since in rows else None


def _count_retracted(
    change: ExtremeChange, steps: Sequence[ValueChange]
) -> tuple[int | None, int | None]:
    """Return how often the old value was retracted, and the number of others beyond the new one."""
    extreme = change.extreme
    old = extreme.parse(change.before)
    lost = [step for step in steps if step.before > 0 >= step.after]
    mine = next((step for step in lost if _is_same(step.value, old)), None)
    if mine is None:
        return None, None
    if change.after is None:
        return mine.before - mine.after, len(lost) - 1
    encode = value_encoder(extreme.type)
    new = extreme.sort_key(change.after)
    further = [s for s in lost if s is not mine and (encode(s.value) > new) == extreme.greatest]
    return mine.before - mine.after, len(further)


def _is_same(one: Value, other: Value) -> bool:
    return one == other or (one != one and other != other)


def newest_changes(changes: Iterable[ExtremeChange]) -> list[ExtremeChange]:
    """Return for each extreme its newest change by retraction, else its newest change."""
    newest: dict[str, ExtremeChange] = {}
    for change in changes:
        known = newest.get(change.extreme.column)
        if known is None or change.retracted or not known.retracted:
            newest[change.extreme.column] = change
    return sorted(newest.values(), key=lambda each: (each.retracted, each.epoch), reverse=True)


def explain_extremes(
    plan: Plan, explained: Explained, multisets: MultisetHistory, rows: Mapping[int, EpochRow]
) -> list[str]:
    """Return sentences about the newest extreme changes of a group."""
    return [
        cause_sentence(change, find_cause(change, multisets, rows, explained.changed))
        for change in newest_changes(find_extreme_changes(plan, explained.epochs))
    ]


# --- sentences ----------------------------------------------------------------------------------


def cause_sentence(change: ExtremeChange, why: Cause, show: Format = str) -> str:
    """Return a sentence with the known facts about a change; `show` formats values."""
    before, after = (
        "NULL" if each is None else show(each) for each in (change.before, change.after)
    )
    verb = "decreased" if change.extreme.greatest == change.retracted else "increased"
    if change.before is None or change.after is None:
        verb = "changed"
    head = f"{change.extreme.column} {verb} from {before} to {after} in epoch {change.epoch}"
    if why.kind == "rewind":
        return f"{head}: the job was restored to an earlier epoch, and no row was retracted."
    if why.kind == "evolve":
        return f"{head}: the job's query changed."
    if not change.retracted:
        return f"{head}: a row with {after} was added{_source_text(change, why)}."
    retracted = _retracted_text(change, why, before, after)
    return f"{head}: {retracted}; {_remaining_text(change, why, after)}."


def _retracted_text(change: ExtremeChange, why: Cause, before: str, after: str) -> str:
    text = f"the value {before} was retracted"
    if why.taken is None:
        return f"{text}, how often is no longer known{_source_text(change, why)}"
    text += f" {_times_text(why.taken)}{_source_text(change, why)}"
    if not why.beyond:
        return text
    others = "another value" if why.beyond == 1 else f"{why.beyond} other values"
    side = ""
    if change.after is not None:
        side = f" {'above' if change.extreme.greatest else 'below'} {after}"
    return f"{text}, and {others}{side} as well"


def _remaining_text(change: ExtremeChange, why: Cause, after: str) -> str:
    if change.after is None:
        return "no value is left" if why.newest else "no value was left"
    extreme = "greatest" if change.extreme.greatest else "smallest"
    verb = "is now" if why.newest else "was then"
    if why.left is None:
        return f"{after} {verb} the {extreme}"
    if why.left == 1:
        return f"{after} {verb} the only value"
    return f"{after} {verb} the {extreme} of {why.left:,}"


def _times_text(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count:,} times")


def _source_text(change: ExtremeChange, why: Cause) -> str:
    """Return the offsets that the change was read from."""
    if why.read is None or why.since is None:
        return " (the source offsets are no longer known)"
    if not why.read:
        return " (no records were read: only time had passed)"
    several = why.since != change.epoch - 1
    epochs = f" by epochs {why.since + 1} to {change.epoch}" if several else ""
    return f" (read{epochs} from {source_text(why.read)})"


def source_text(read: Mapping[str, Mapping[str, Sequence[int]]]) -> str:
    """Return offsets by topic and partition: shop.product/0 [120, 131), /2 [7, 9)."""
    texts = []
    for topic, partitions in sorted(read.items()):
        ordered = sorted(partitions.items(), key=lambda each: int(each[0]))
        ranges = [f"/{name} [{start}, {end})" for name, (start, end) in ordered]
        texts.append(topic + ", ".join(ranges))
    return ", ".join(texts)
