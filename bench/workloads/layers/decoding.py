"""Decode and consolidate on one core, without Kafka and Spark: messages per second."""

from __future__ import annotations

import time

from bench.fold import QUERY
from bench.folding import EpochsByHand
from bench.frame import Bench, Figure
from bench.generator import COLUMNS, Shape, ShopTable
from jobs.core.sql.select import parse_query
from schemas.types.sql_types import SqlType

TITLE = "decoding"
MESSAGES = 100_000
ROUNDS = 5
RATE_MIN = 600_000


def run(bench: Bench) -> None:
    if not bench.options.retally:
        return
    declared = {name: SqlType.parse(kind) for name, kind in COLUMNS.items()}
    job = EpochsByHand(parse_query(QUERY, declared), bench.directory / "decoding")
    table = ShopTable(Shape())
    rates, size = [], 0.0
    with bench.measuring("decode and consolidate, one core"):
        for _ in range(ROUNDS):
            lines = [line for lines in table.changes(MESSAGES) for line in lines]
            size = sum(map(len, lines)) / len(lines)
            began = time.process_time()
            job.decode(lines)
            rates.append(len(lines) / (time.process_time() - began))
    rate = max(rates[1:])  # the first round fills the caches
    bench.add(
        Figure(
            TITLE,
            "retally",
            f"messages of {size:.0f} bytes, one core",
            rate,
            "a second",
            f">= {RATE_MIN:,}",
            rate >= RATE_MIN,
        )
    )
