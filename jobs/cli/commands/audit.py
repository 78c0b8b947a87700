"""retally audit: recomputes a job's results from its topic, and compares."""

from __future__ import annotations

import argparse
from functools import partial

from jobs.cli.output import escape_controls, print_answer, render_cell
from jobs.cli.sources import open_source
from schemas.types.json_types import JsonObject

_DOUBTS = {
    "missing_rows": "rows were retracted that the topic does not have",
    "source_repeats": "times the source began to repeat itself, so rows count twice",
    "repeated_messages": "messages say what an earlier one does, so their rows may count twice",
    "keys_in_several_partitions": "keys have changes in several partitions, so without an order",
    "ambiguous_keys": "keys have changes that may be repeats, or from before a TRUNCATE",
}
_VERDICTS = {"equal": "equal", "different": "DIFFERENT", "undecided": "undecided"}


def run(options: argparse.Namespace) -> int:
    with open_source(options) as source:
        report = source.audit()
    name = f"{report['job']}.{options.view}" if options.view else report["job"]
    text = _print_views if "views" in report else partial(_print, name)
    print_answer(options.output, [report], text=text)
    return 0 if report["verdict"] == "equal" else 1


def _print_views(report: JsonObject) -> None:
    """Print the report of each view, and the verdict of the job."""
    job = report["job"]
    for name, view in report["views"].items():
        if "reason" in view:
            print(f"{job}.{name}: {view['reason']}\n{view['verdict']}")
        else:
            _print(f"{job}.{name}" if name else job, view)
    count, differing = len(report["views"]), report["differing"]
    print(f"{job}: {count} views, {differing} differing groups, {_VERDICTS[report['verdict']]}")


def _print(name: str, report: JsonObject) -> None:
    topics, odd = report["offsets"], report["odd"]
    read = sum(end - start for partitions in topics.values() for start, end in partitions.values())
    groups = "1 group" if report["groups"] == 1 else f"{report['groups']} groups"
    print(
        f"{name} at epoch {report['epoch']}: {groups}, recomputed from "
        f"{read} offsets of {', '.join(topics)}"
    )
    if beyond := report["not_compared"]:
        print(f"{beyond} groups were not compared: their sums are beyond DECIMAL(38)")
    for each in report["differences"]:
        print(f"  {_to_text(each['group'])}\n    table       {_to_text(each['table'])}")
        print(f"    recomputed  {_to_text(each['recomputed'])}")
    if (more := report["differing"] - len(report["differences"])) > 0:
        print(f"  and {more} more")
    if doubts := {name: odd[name] for name in _DOUBTS if name in odd}:
        for name, count in doubts.items():
            print(f"{count} {_DOUBTS[name]}")
        for each in report["doubts"]:
            print(f"  {escape_controls(each)}")
        print("So the topic does not decide these rows; compare them with the source.")
    if dropped := odd.get("dropped_retractions"):
        print(
            f"{dropped} retractions were dropped because they came before their rows "
            "(early_retractions: drop). What is dropped depends on the bundles."
        )
    print(_VERDICTS[report["verdict"]])


def _to_text(row: JsonObject | None) -> str:
    return "(no such group)" if row is None else render_cell(row)
