"""Decode and consolidate on one core, without Kafka and Spark: messages per second.

canal-json is scanned by a kernel. debezium-avro has the same changes, read one by one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any

from bench.decoding import avro_schema, avro_writer, debezium
from bench.fold import QUERY
from bench.folding import EpochsByHand
from bench.frame import Bench, Figure
from bench.generator import COLUMNS, Shape, ShopTable
from jobs.core.formats.registry import MessageRules
from jobs.core.plan.tree import Column, Plan
from jobs.core.sql.select import parse_query
from jobs.core.values.change import Changes, Decoded
from jobs.edge.rows.signed_rows import SignedRows
from jobs.edge.tasks.body import collector_off
from schemas.limits import PIECE_MESSAGES
from schemas.types.sql_types import SqlType

TITLE = "decoding"
MESSAGES = 100_000
ROUNDS = 5
RATES_MIN = {"": 600_000, "debezium-avro": 200_000}
_OPS = {"INSERT": "c", "UPDATE": "u", "DELETE": "d"}


def run(bench: Bench) -> None:
    if not bench.options.retally:
        return
    declared = {name: SqlType.parse(kind) for name, kind in COLUMNS.items()}
    plan = parse_query(QUERY, declared)
    job = EpochsByHand(plan, bench.directory / "decoding")
    decode = make_avro_decode(plan.columns, plan.used)
    table, write = ShopTable(Shape()), avro_writer(avro_schema(COLUMNS))
    rates: dict[str, list[float]] = {name: [] for name in RATES_MIN}
    sizes: dict[str, float] = {}
    with bench.measuring("decode and consolidate, one core"):
        for _ in range(ROUNDS):
            lines = [line for lines in table.changes(MESSAGES) for line in lines]
            of_formats = {"": lines, "debezium-avro": [write(to_debezium(line)) for line in lines]}
            for name, values in of_formats.items():
                began = time.process_time()
                if name:
                    with collector_off():
                        consolidate(plan, decode, values)
                else:
                    job.decode(values)
                rates[name].append(len(values) / (time.process_time() - began))
                sizes[name] = sum(map(len, values)) / len(values)
    for name, least in RATES_MIN.items():
        rate = max(rates[name][1:])  # the first round fills the caches
        what = f"messages of {sizes[name]:.0f} bytes, one core"
        what = f"{name}, {what}" if name else what
        figure = Figure(TITLE, "retally", what, rate, "a second", f">= {least:,}", rate >= least)
        bench.add(figure)


def make_avro_decode(
    columns: Sequence[Column], used: Sequence[Column]
) -> Callable[[bytes], Decoded]:
    """Return the decode function of a job whose registry has one schema."""
    schema = (json.dumps(avro_schema(COLUMNS)),)
    rules = MessageRules("debezium-avro")
    return rules.decoder(tuple(columns), tuple(used), find_schema=lambda _: schema).decode


def to_debezium(line: bytes) -> dict[str, Any]:
    """Return a message of canal as one of Debezium."""
    message = json.loads(line)
    (after,) = map(_typed, message["data"])
    before = after | _typed(message["old"][0] if message["old"] else {})
    images = {"INSERT": (None, after), "UPDATE": (before, after), "DELETE": (before, None)}
    old, new = images[message["type"]]
    return debezium({}, 0) | {"before": old, "after": new, "op": _OPS[message["type"]]}


def _typed(row: dict[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = dict(row)
    values |= {name: int(row[name]) for name in ("id", "cnt") if name in row}
    if "price" in row:
        values["price"] = int(Decimal(row["price"]) * 100).to_bytes(4, "big", signed=True)
    return values


def consolidate(plan: Plan, decode: Callable[[bytes], Decoded], values: list[bytes]) -> None:
    """Decode and consolidate a range of messages that no kernel scans, as the decode task does."""
    rows = SignedRows(plan.used)
    for start in range(0, len(values), PIECE_MESSAGES):
        rows.add(list(_changes(decode, values[start : start + PIECE_MESSAGES])))
    rows.concatenate().consolidate(0, keep_zeros=False)


def _changes(decode: Callable[[bytes], Decoded], values: list[bytes]) -> Iterator[Any]:
    for value in values:
        decoded = decode(value)
        assert isinstance(decoded, Changes), decoded
        yield from decoded.changes
