"""Turns: how a group's MAX or MIN went from one value to another, and what took the old one away.

    changelog of the group ──► each extreme, epoch by epoch ──► turns
    entries of its multisets, with the epochs that wrote them ──┐
    epoch rows ──► what was read meanwhile ─────────────────────┴──► why, in a sentence

Nothing here is guessed. That a MAX went down says by itself that every row with the old value was
taken away; how many there were, and of how many the new one is the greatest, is told only where the
table has kept it apart from what came before and after.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from jobs.core.explain.explanation import Read, ranges_read
from jobs.core.plan.tree import Plan
from jobs.core.values.change import Value
from jobs.core.values.json_values import Json, parser
from jobs.core.values.order_key import value_encoder
from schemas.table.epoch import EpochRow
from schemas.types.sql_types import SqlType

_EXTREMES = {"MAX": True, "MIN": False}  # whether the greatest is shown
_ANEW = ("rewind", "clone", "evolve")
# A file that was merged says so in its name, behind the newest epoch in it.
_MERGED = re.compile(r"part=multisets/(\d+)-.*-c\d(?:-\d+)?\.parquet")
JsonRow = Mapping[str, Json]
Shown = Callable[[Any], str]


class Entry(NamedTuple):
    """How often a group's argument had a value, as an epoch wrote it."""

    argument: int
    value: Value
    epoch: int
    multiplicity: int


class Step(NamedTuple):
    """What some epochs made of one value: how often it was there before, and after."""

    value: Value
    before: int
    after: int


class Remembered:
    """The multisets of one group over the epochs. `entries` are all that the table still has;
    up to the epoch `settled` it has merged them, so that only what was newest is left.

    A multiset may be long, and many epochs are asked about: what an epoch changed is found without
    going through all of it.
    """

    def __init__(self, entries: Iterable[Entry], settled: int) -> None:
        self.settled = settled
        self._courses: dict[int, dict[Value, list[tuple[int, int]]]] = {}
        self._written: dict[int, list[tuple[int, Value]]] = {}  # in the order of the epochs
        self._sizes: dict[int, list[tuple[int, int]]] = {}  # how many values there were, since when
        for argument, value, epoch, multiplicity in sorted(entries, key=lambda each: each.epoch):
            course = self._courses.setdefault(argument, {}).setdefault(value, [])
            before = course[-1][1] if course else 0
            course.append((epoch, multiplicity))
            self._written.setdefault(argument, []).append((epoch, value))
            sizes = self._sizes.setdefault(argument, [])
            size = sizes[-1][1] if sizes else 0
            sizes.append((epoch, size + max(multiplicity, 0) - max(before, 0)))

    def size(self, argument: int, epoch: int) -> int | None:
        """How many values there were after an epoch, each as often as it was there."""
        return None if epoch < self.settled else _at(self._sizes.get(argument, ()), epoch)

    def steps(self, argument: int, since: int, epoch: int) -> list[Step] | None:
        """What the epochs (since, epoch] changed; None where that is forgotten."""
        if since < self.settled:
            return None
        written = self._written.get(argument, ())
        first = bisect_right(written, since, key=_epoch)
        last = bisect_right(written, epoch, key=_epoch)
        courses = self._courses.get(argument, {})
        values = dict.fromkeys(value for _, value in written[first:last])
        found = (Step(v, _at(courses[v], since), _at(courses[v], epoch)) for v in values)
        return [step for step in found if step.before != step.after]


def _epoch(written: tuple[int, Value]) -> int:
    return written[0]


def _at(course: Sequence[tuple[int, int]], epoch: int) -> int:
    """What was so after an epoch; 0 before there was anything."""
    place = bisect_right(course, epoch, key=lambda each: each[0])
    return course[place - 1][1] if place else 0


@dataclass(frozen=True, slots=True)
class Extreme:
    """A result column that shows the greatest or the least value of an argument."""

    column: str
    argument: int
    type: SqlType
    greatest: bool

    def place(self, value: Json) -> bytes:
        """Bytes that sort as values of the column do."""
        return value_encoder(self.type)(self.read(value))

    def read(self, value: Json) -> Value:
        return None if value is None else parser(self.type)(value)

    def retreats(self, before: Json, after: Json) -> bool:
        """Whether the old value must have been taken away: no other shows less of a MAX."""
        if before is None or before == after:
            return False
        if after is None:
            return True
        return (self.place(after) < self.place(before)) == self.greatest


def extremes(plan: Plan) -> list[Extreme]:
    """The result columns that are MAX or MIN of something."""
    return [
        Extreme(each.name, each.argument, each.type, _EXTREMES[each.function])
        for each in plan.aggregates
        if each.function in _EXTREMES and each.argument is not None and each.name in plan.output
    ]


@dataclass(frozen=True, slots=True)
class Turn:
    """An extreme that went from one value to another in an epoch."""

    extreme: Extreme
    epoch: int
    before: Json
    after: Json
    retreats: bool


def turns(plan: Plan, epochs: Iterable[tuple[int, Sequence[tuple[str, JsonRow]]]]) -> list[Turn]:
    """Those of a group, oldest first. `epochs` are numbers and changelog rows: op and row."""
    found = []
    columns = extremes(plan)
    for epoch, changes in epochs:
        old, new = _ends(changes)
        if old is None or new is None:
            continue
        for extreme in columns:
            before, after = old[extreme.column], new[extreme.column]
            if before != after:
                retreats = extreme.retreats(before, after)
                found.append(Turn(extreme, epoch, before, after, retreats))
    return found


def _ends(changes: Sequence[tuple[str, JsonRow]]) -> tuple[JsonRow | None, JsonRow | None]:
    """How an epoch found a group, and how it left it."""
    if not changes:
        return None, None
    (first, old), (last, new) = changes[0], changes[-1]
    return (None if first == "+I" else old), (None if last == "-D" else new)


@dataclass(frozen=True, slots=True)
class Cause:
    """What is known of why an extreme turned."""

    kind: str  # of the epoch: data, time, rewind, evolve ...; "" where it is forgotten
    since: int | None  # the epochs (since, epoch] made the change
    read: Read | None  # what they read; None where that is forgotten
    taken: int | None  # how often the old value was taken away; None where it is forgotten
    beyond: int | None  # how many values between the old and the new one went as well
    left: int | None  # of how many the new one is the greatest, or the least
    newest: bool  # whether the group has not been written since


def cause(
    turn: Turn, remembered: Remembered, rows: Mapping[int, EpochRow], changed: int | None
) -> Cause:
    """`rows` are epoch rows by number, `changed` is the epoch that wrote the group last."""
    row = rows.get(turn.epoch)
    since = began(rows, turn.epoch)
    read = None
    if row is not None and since is not None and row.kind not in _ANEW:
        read = ranges_read(rows[since].offsets, row.offsets)
    taken = beyond = None
    if since is not None and turn.retreats:
        steps = remembered.steps(turn.extreme.argument, since, turn.epoch)
        taken, beyond = _taken(turn, steps or [])
    left = remembered.size(turn.extreme.argument, turn.epoch)
    return Cause(
        kind="" if row is None else row.kind,
        since=since,
        read=read,
        taken=taken,
        beyond=beyond,
        left=left or None,
        newest=changed is not None and changed <= turn.epoch,
    )


def began(rows: Mapping[int, EpochRow], epoch: int) -> int | None:
    """The epoch after which the changes of an epoch began: the one before it, or under the event
    clock the last one that withheld nothing. None where that is forgotten."""
    since = epoch - 1
    while since in rows and rows[since].watermarks.get("agenda", {}).get("withheld"):
        since -= 1
    return since if since in rows else None


def _taken(turn: Turn, steps: Sequence[Step]) -> tuple[int | None, int | None]:
    """How often the old value went, and how many others beyond the new one did."""
    extreme = turn.extreme
    old = extreme.read(turn.before)
    lost = [step for step in steps if step.before > 0 >= step.after]
    mine = next((step for step in lost if _same(step.value, old)), None)
    if mine is None:
        return None, None
    if turn.after is None:
        return mine.before - mine.after, len(lost) - 1
    encode = value_encoder(extreme.type)
    new = extreme.place(turn.after)
    further = [s for s in lost if s is not mine and (encode(s.value) > new) == extreme.greatest]
    return mine.before - mine.after, len(further)


def _same(one: Value, other: Value) -> bool:
    return one == other or (one != one and other != other)


def newest_turns(found: Iterable[Turn]) -> list[Turn]:
    """Of each extreme its newest retreat, else its newest turn: what one wants to know first."""
    newest: dict[str, Turn] = {}
    for turn in found:
        known = newest.get(turn.extreme.column)
        if known is None or turn.retreats or not known.retreats:
            newest[turn.extreme.column] = turn
    return sorted(newest.values(), key=lambda turn: (turn.retreats, turn.epoch), reverse=True)


def settled_until(live: Collection[str], rows: Iterable[EpochRow]) -> int:
    """The epoch up to which a table has merged its multisets (see Remembered); `live` are the
    names of their files."""
    settled = [-1, *(int(found[1]) for name in live if (found := _MERGED.fullmatch(name)))]
    for row in rows:
        gone = not all(name in live for name in row.files.get("multisets", ()))
        if gone or row.kind in _ANEW:  # which did not go on where the one before ended
            settled.append(row.epoch)
    return max(settled)


def reasons(
    plan: Plan, explained: Mapping[str, Any], remembered: Remembered, rows: Mapping[int, EpochRow]
) -> list[str]:
    """Why the extremes of a group are what they are, in sentences; from what is told of it (see
    jobs.core.explain.explanation)."""
    epochs = explained["epochs"]
    found = turns(plan, ((e["epoch"], [(c["op"], c["row"]) for c in e["changes"]]) for e in epochs))
    return [
        sentence(turn, cause(turn, remembered, rows, explained["changed"]))
        for turn in newest_turns(found)
    ]


# --- in words -----------------------------------------------------------------------------------


def sentence(turn: Turn, why: Cause, shown: Shown = str) -> str:
    """Why an extreme turned, as far as it is known; `shown` writes a value."""
    column, epoch = turn.extreme.column, turn.epoch
    before, after = ("NULL" if each is None else shown(each) for each in (turn.before, turn.after))
    way = "down" if turn.extreme.greatest == turn.retreats else "up"
    if turn.before is None or turn.after is None:
        way = ""
    head = f"{column} went {way} from {before} to {after}".replace("  ", " ")
    head = f"{head} in epoch {epoch}"
    if why.kind == "rewind":
        return f"{head}: the job was set back then, and no row was taken away."
    if why.kind == "evolve":
        return f"{head}: the job's query was changed then."
    if not turn.retreats:
        return f"{head}: a row with {after} came{_source(turn, why)}."
    return f"{head}: {_lost(turn, why, before, after)}; {_left(turn, why, after)}."


def _lost(turn: Turn, why: Cause, before: str, after: str) -> str:
    told = f"the value {before} was taken away"
    if why.taken is None:
        return f"{told}, how often is no longer remembered{_source(turn, why)}"
    told += f" {_times(why.taken)}{_source(turn, why)}"
    if not why.beyond:
        return told
    others = "another value" if why.beyond == 1 else f"{why.beyond} other values"
    where = (
        "" if turn.after is None else f" {'above' if turn.extreme.greatest else 'below'} {after}"
    )
    return f"{told}, and {others}{where} as well"


def _left(turn: Turn, why: Cause, after: str) -> str:
    if turn.after is None:
        return "no value is left" if why.newest else "no value was left"
    most = "greatest" if turn.extreme.greatest else "least"
    verb = "is now" if why.newest else "was then"
    if why.left is None:
        return f"{after} {verb} the {most}"
    if why.left == 1:
        return f"{after} {verb} the only value"
    return f"{after} {verb} the {most} of {why.left:,}"


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count:,} times")


def _source(turn: Turn, why: Cause) -> str:
    """Where what made the change was read."""
    if why.read is None or why.since is None:
        return " (from which offsets is no longer known)"
    if not why.read:
        return " (nothing was read: time had come)"
    which = "" if why.since == turn.epoch - 1 else f" by epochs {why.since + 1} to {turn.epoch}"
    return f" (read{which} from {source_text(why.read)})"


def source_text(read: Mapping[str, Mapping[str, Sequence[int]]], number: Shown = str) -> str:
    """Offsets by topic and partition: shop.product/0 [120, 131), /2 [7, 9)."""
    told = []
    for topic, partitions in sorted(read.items()):
        places = sorted(partitions.items(), key=lambda each: int(each[0]))
        ranges = [f"/{name} [{number(start)}, {number(end)})" for name, (start, end) in places]
        told.append(topic + ", ".join(ranges))
    return ", ".join(told)
