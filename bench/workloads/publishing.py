"""The cost of publishing in a backfill: exactly once to a changelog topic, and without, in turn."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from bench.fold import Folded, fold_changelog, fold_upserts
from bench.frame import Bench, Figure, Loaded
from bench.generator import Shape
from bench.outcome import check
from bench.product import RetallyJob
from bench.workloads.aggregates import audit

TITLE = "publishing"
ROUNDS = 3
CHANGES_MAX = 1_500_000
EPOCH_CHANGES = 250_000
# The share of the rate without a topic: an update is two messages, or one.
SHARE_MIN = {"changelog-json": 0.85, "upsert-json": 0.90}


def run(bench: Bench) -> None:
    if not bench.options.retally:
        return
    loaded = bench.load(Shape(changes=min(bench.options.changes, CHANGES_MAX)))
    forms: tuple[str | None, ...] = (None, *SHARE_MIN)
    shares: dict[str, list[float]] = {form: [] for form in SHARE_MIN}
    for turn in range(ROUNDS):
        # Rotate the order, because the speed of the machine may change during the run.
        rates = {form: _rate(bench, loaded, form, turn) for form in (*forms[turn:], *forms[:turn])}
        for form, found in shares.items():
            found.append(rates[form] / rates[None])
    for form, found in shares.items():
        share = statistics.median(found)
        bench.add(
            Figure(
                TITLE,
                "retally",
                f"{form}: of the rate without, median of {ROUNDS}",
                share,
                "",
                f">= {SHARE_MIN[form]}",
                share >= SHARE_MIN[form],
            )
        )


def _rate(bench: Bench, loaded: Loaded, form: str | None, turn: int) -> float:
    name = f"{form or 'silent'}-{turn}"
    topic = f"{loaded.topic}-{name}"
    job = RetallyJob(
        name=name,
        brokers=bench.brokers,
        topic=loaded.topic,
        directory=bench.directory / name,
        minibatch={"size": 5_000, "latency": "1s", "max_rows": EPOCH_CHANGES},
        overrides={"sink": None if form is None else {"topic": topic, "format": form}},
        published_ms=_last_ms(form),
    )
    with bench.measuring(f"retally: {form or 'no topic'}"):
        outcome = job.catch_up()
    if form is None:
        audit(job)
    else:
        check("retally", _fold(form)(bench.brokers, job.sink_topic).table, loaded.table.truth())
    return outcome.rate_after(next(point.changes for point in outcome.progress if point.changes))


def _fold(form: str) -> Callable[[str, str], Folded]:
    return fold_upserts if form == "upsert-json" else fold_changelog


def _last_ms(form: str | None) -> Callable[[str, str], int] | None:
    return None if form is None else lambda *place: _fold(form)(*place).last_ms
