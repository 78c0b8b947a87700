"""retally offsets: prints the offsets of a job, or changes those of a stopped job."""

from __future__ import annotations

import argparse
import re

from jobs.cli.errors import UsageError
from jobs.cli.output import Columns, describe_moved, print_answer, print_note
from jobs.cli.sources import open_source
from schemas.table.epoch import Offsets

_COLUMNS: Columns = {"topic": "topic", "partition": "partition", "next offset": "next"}
_SET = re.compile(r"(.{1,500})/([0-9]{1,9})=([0-9]{1,18})", re.ASCII)


def run(options: argparse.Namespace) -> None:
    to = _parse(options.set or [])
    with open_source(options) as source:
        if to or options.reset:
            document = source.move_offsets(None if options.reset else to, at=options.at)
        else:
            document = source.read_offsets()
    rows = [
        {"topic": topic, "partition": int(partition), "next": offset}
        for topic, partitions in sorted(document["offsets"].items())
        for partition, offset in sorted(partitions.items(), key=lambda each: int(each[0]))
    ]
    print_answer(options.output, [document] if options.output == "json" else rows, _COLUMNS)
    if options.output == "json":
        return
    if document["moved"] is not None:
        print_note(describe_moved(document["moved"]))
    print_note(f"{document['job']} is at epoch {document['epoch']}")


def _parse(texts: list[str]) -> Offsets:
    found: Offsets = {}
    for text in texts:
        parts = _SET.fullmatch(text)
        if parts is None:
            raise UsageError(f"--set {text!r}: write TOPIC/PARTITION=OFFSET, as shop.product/0=12")
        topic, partition, offset = parts.groups()
        found.setdefault(topic, {})[str(int(partition))] = int(offset)
    return found
