"""Print the explanation of a group, from a table or from the service."""

from __future__ import annotations

from jobs.cli.output import (
    OP_STYLES,
    describe_moved,
    escape_controls,
    open_console,
    print_table,
    render_cell,
)
from schemas.documents.explanation import Explained, LateRow, OffsetRanges
from schemas.types.json_types import JsonObject

ENTRIES_SHOWN = 20
EPOCHS_SHOWN = 20
LATE_SHOWN = 20
JOINED_SHOWN = 20


def print_explanation(job: str, explained: Explained) -> None:
    group, row = render_cell(explained.group), explained.row
    print(f"{job} {group} at epoch {explained.epoch}")
    if explained.moved is not None:
        print(describe_moved(explained.moved))
    if explained.row_count is None:
        print("The group is gone: its last row was retracted, or it expired.")
    elif row is None and explained.row_count <= 0 and not explained.withheld:
        print("The group is below zero: more of its rows were retracted than inserted, so far.")
    elif row is None:
        print(f"{explained.row_count} live rows; it has no result yet")
    else:
        print(f"row  {render_cell(row)}")
        print(f"{explained.row_count} live rows, last changed in epoch {explained.changed}")
    for sentence in explained.why:
        print(escape_controls(sentence))
    if explained.withheld:
        print("Changes since then are withheld until the watermark ends their bundle.")
    if explained.closed:
        print("Its window has closed: this is its final result.")
    _print_late(explained.late)
    for argument in explained.arguments:
        _print_argument(argument)
    _print_joined(explained)
    if explained.has_negative:
        print("\nThe source retracted values with a negative multiplicity before it inserted them.")
        print("MAX and MIN ignore these values.")
    print("\nhistory")
    if not explained.history_complete:
        print("(the changelog before this has been removed)")
    epochs = explained.epochs
    if len(epochs) > EPOCHS_SHOWN:
        print(f"({len(epochs) - EPOCHS_SHOWN} earlier epochs left out; -o json has all)")
    screen = open_console()
    for epoch in epochs[-EPOCHS_SHOWN:]:
        print(f"epoch {epoch.epoch}, {epoch.snapshot or _describe_ranges(epoch.offsets)}")
        for change in epoch.changes:
            line = f"  {change.op} {render_cell(change.row)}"
            screen.print(line, style=OP_STYLES[change.op], soft_wrap=True)


def _print_late(late: list[LateRow]) -> None:
    """Print the changes that arrived after the window had closed."""
    if not late:
        return
    print(f"\n{len(late)} changes came too late for this window; the result does not include them")
    for each in late[:LATE_SHOWN]:
        position = f"{each.topic}/{each.partition} offset {each.offset}"
        became = "" if each.became is None else f", now {render_cell(each.became)}"
        print(f"  {each.weight:+} {render_cell(each.row)}{became} ({position})")
    if len(late) > LATE_SHOWN:
        print(f"  ({len(late) - LATE_SHOWN} more left out; -o json has all)")


def _print_joined(explained: Explained) -> None:
    """Print the rows of both sides of the join that the group is of."""
    joined = explained.joined
    if not isinstance(joined, list):
        return
    all_of_them = "" if explained.joined_complete else ", not all of them"
    print(f"\njoined rows{all_of_them}")
    for each in joined[:JOINED_SHOWN]:
        for number, side in enumerate(each.rows):
            times = f"{each.weight} x" if number == 0 else ""
            position = f"epoch {side.epoch}, {_describe_ranges(side.offsets)}"
            print(f"{times:>6} {render_cell(side.row)} ({position})")
    if len(joined) > JOINED_SHOWN:
        print(f"({len(joined) - JOINED_SHOWN} more left out; -o json has them)")


def _print_argument(argument: JsonObject) -> None:
    numbers = [
        f"{name.replace('_', ' ')} {value}"
        for name, value in argument.items()
        if name not in ("argument", "used_by", "multiset")
    ]
    print(f"\n{escape_controls(argument['argument'])}: {', '.join(numbers) or 'its values'}")
    print(f"for {', '.join(argument['used_by'])}")
    entries = argument.get("multiset")
    if entries is None:
        return
    cut = entries = entries[::-1]  # the greatest first, as in the console
    if len(entries) > ENTRIES_SHOWN:  # both ends: MAX is at one, MIN at the other
        half = ENTRIES_SHOWN // 2
        cut = [*entries[:half], *entries[-half:]]
        print(f"({len(entries) - ENTRIES_SHOWN} values in between left out; -o json has all)")
    rows = [
        [render_cell(each["value"]), times, "never inserted" if times < 0 else ""]
        for each in cut
        for times in [each["multiplicity"]]
    ]
    print_table(["value", "times", ""], rows, ["value", "times"])


def _describe_ranges(offsets: OffsetRanges | None) -> str:
    if not offsets:
        return "read from no new offsets" if offsets is not None else "no offsets of its own"
    parts = [
        f"{topic}/{partition} [{start}, {end})"
        for topic, partitions in offsets.items()
        for partition, (start, end) in partitions.items()
    ]
    return "read from " + ", ".join(parts)
