"""Print the explanation of a group, from a table or from the service."""

from __future__ import annotations

import json
from typing import Any

from jobs.cli.output import OP_STYLES, console, moved_note, print_table, safe, shown
from jobs.core.explain.explanation import negative

ENTRIES_SHOWN = 20
EPOCHS_SHOWN = 20
LATE_SHOWN = 20


def print_explanation(document: dict[str, Any]) -> None:
    group, row = _text(document["group"]), document["row"]
    print(f"{document['job']} {group} at epoch {document['epoch']}")
    if document["moved"] is not None:
        print(moved_note(document["moved"]))
    if document["row_count"] is None:
        print("The group is gone: its last row was taken away, or it expired.")
    elif row is None:
        print(f"made of {document['row_count']} rows; it has no result yet")
    else:
        print(f"row  {_text(row)}")
        print(f"made of {document['row_count']} rows, last changed in epoch {document['changed']}")
    for sentence in document.get("why", ()):  # a service of before does not say it
        print(safe(sentence))
    if document["withheld"]:
        print("Changes since then are withheld until the watermark ends their bundle.")
    if document["closed"]:
        print("Its window has closed: this stays its result.")
    _print_late(document["late"])
    for argument in document["arguments"]:
        _print_argument(argument)
    if negative(document):
        print("\nA value with a negative multiplicity was taken away and never given; MAX and MIN")
        print("do not show it.")
    print("\nhow it came about")
    if not document["history_complete"]:
        print("(the changelog before this has been cleaned up)")
    epochs = document["epochs"]
    if len(epochs) > EPOCHS_SHOWN:
        print(f"({len(epochs) - EPOCHS_SHOWN} earlier epochs left out; --json has all)")
    screen = console()
    for epoch in epochs[-EPOCHS_SHOWN:]:
        print(f"epoch {epoch['epoch']}, {_offsets(epoch['offsets'])}")
        for change in epoch["changes"]:
            line = f"  {change['op']} {_text(change['row'])}"
            screen.print(line, style=OP_STYLES[change["op"]], soft_wrap=True)


def _print_late(late: list[dict[str, Any]]) -> None:
    """What the result is without, because it came when the window had closed."""
    if not late:
        return
    print(f"\n{len(late)} changes came too late for this window; the result is without them")
    for each in late[:LATE_SHOWN]:
        place = f"{each['topic']}/{each['partition']} offset {each['offset']}"
        became = "" if each["became"] is None else f", now {_text(each['became'])}"
        print(f"  {each['weight']:+} {_text(each['row'])}{became} ({place})")
    if len(late) > LATE_SHOWN:
        print(f"  ({len(late) - LATE_SHOWN} more left out; --json has all)")


def _print_argument(argument: dict[str, Any]) -> None:
    numbers = [
        f"{name.replace('_', ' ')} {value}"
        for name, value in argument.items()
        if name not in ("argument", "used_by", "multiset")
    ]
    print(f"\n{safe(argument['argument'])}: {', '.join(numbers) or 'its values'}")
    print(f"for {', '.join(argument['used_by'])}")
    entries = argument.get("multiset")
    if entries is None:
        return
    cut = entries
    if len(entries) > ENTRIES_SHOWN:  # both ends: one is behind MIN, the other behind MAX
        half = ENTRIES_SHOWN // 2
        cut = [*entries[:half], *entries[-half:]]
        print(f"({len(entries) - ENTRIES_SHOWN} values in between left out; --json has all)")
    rows = [[shown(e["value"]), e["multiplicity"], _mark(e["multiplicity"])] for e in cut]
    print_table([("value", True), ("times", True), ("", False)], rows)


def _mark(multiplicity: int) -> str:
    return "never given" if multiplicity < 0 else ""


def _offsets(offsets: dict[str, dict[str, list[int]]] | None) -> str:
    if not offsets:
        return "read from no new offsets" if offsets is not None else "no offsets of its own"
    parts = [
        f"{topic}/{partition} [{start}, {end})"
        for topic, partitions in offsets.items()
        for partition, (start, end) in partitions.items()
    ]
    return "read from " + ", ".join(parts)


def _text(row: object) -> str:
    return safe(json.dumps(row, ensure_ascii=False))
