"""`python -m bench`: run the workloads, for retally and its peers over the same topics.

The exit code is 1 if a result is wrong or a bound is missed.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path

from bench import report
from bench.frame import Bench, Options
from bench.outcome import BenchFailed
from bench.workloads import names, workload
from bench.workloads.aggregates import CALLS
from jobs.edge.process.broker import Broker

OUT = Path(__file__).resolve().parent / "out"
CHANGES = 6_000_000
GROUPS = 10_000_000
STEADY_SECONDS = 60.0


def main(arguments: list[str]) -> int:
    chosen = _parse(arguments)
    began = time.monotonic()
    # The topics and tables of a run are large, and the next run cannot use them.
    directory = OUT / "run"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    options = Options(
        changes=chosen.changes,
        seconds=chosen.seconds,
        flink=not chosen.skip_flink,
        retally=not chosen.skip_retally,
        calls=tuple(chosen.call or ()),
        groups=chosen.groups,
    )
    failed = False
    with Broker(directory / "broker") as broker:
        bench = Bench(broker.address, OUT, directory, options)
        try:
            for name in chosen.only or names():
                try:
                    workload(name).run(bench)
                except BenchFailed as problem:
                    failed = True
                    bench.console.print(f"bench: {name}: {problem}", style="red", markup=False)
        finally:  # report the figures of an hour even if the run fails
            report.show(bench)
            results = report.write(bench, OUT / "results.json", time.monotonic() - began)
    if chosen.keep and not failed:
        report.keep(results)
        report.write_pages()
    return int(failed or any(figure.holds is False for figure in bench.figures))


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--changes", type=int, default=CHANGES, help="of the backfill")
    parser.add_argument(
        "--seconds", type=float, default=STEADY_SECONDS, help="of each steady stream"
    )
    parser.add_argument("--groups", type=int, default=GROUPS, help="the most of a growing state")
    parser.add_argument("--only", action="append", choices=names(), help="may be given twice")
    parser.add_argument(
        "--call",
        action="append",
        choices=list(CALLS),
        metavar="AGGREGATE",
        help="of the aggregates measure this one alone; may be given twice",
    )
    parser.add_argument(
        "--keep", action="store_true", help="keep the figures, and write them into the pages"
    )
    parser.add_argument("--skip-flink", action="store_true")
    parser.add_argument("--skip-retally", action="store_true", help="the peers alone")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
