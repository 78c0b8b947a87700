"""Measure the rows per second that each source format decodes, without Kafka and Spark.

    python -m bench.decoding [ROWS]

The messages look as their sources write them. Those of canal, Debezium (with and without schema,
and in Avro) and Maxwell have the same updates of the same table; retally publishes the other two
formats.
"""

from __future__ import annotations

import io
import json
import random
import struct
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

import fastavro

from jobs.core.formats.registry import MessageRules
from jobs.core.plan.tree import Column
from jobs.core.values.change import Changes, Decoded
from schemas.types.sql_types import SqlType

COLUMNS = tuple(
    Column(name, SqlType.parse(kind))
    for name, kind in {"id": "BIGINT", "name": "STRING", "cnt": "INT"}.items()
)
USED = COLUMNS[1:]
ROUNDS = 3


def table_row(dice: random.Random, number: int) -> dict[str, Any]:
    return {"id": number, "name": f"item{dice.randrange(1_000)}", "cnt": dice.randrange(1_000)}


def canal(row: dict[str, Any], old: int) -> dict[str, Any]:
    return {
        "data": [{name: str(value) for name, value in row.items()}],
        "database": "shop",
        "es": 1589373515000,
        "id": 3,
        "isDdl": False,
        "mysqlType": {"id": "BIGINT", "name": "VARCHAR(255)", "cnt": "INT"},
        "old": [{"cnt": str(old)}],
        "pkNames": ["id"],
        "sql": "",
        "sqlType": {"id": -5, "name": 12, "cnt": 4},
        "table": "product",
        "ts": 1589373515477,
        "type": "UPDATE",
    }


def maxwell(row: dict[str, Any], old: int) -> dict[str, Any]:
    return {
        "database": "shop",
        "table": "product",
        "type": "update",
        "ts": 1589373515,
        "xid": 8891,
        "commit": True,
        "position": "master.000006:800911",
        "server_id": 23042,
        "data": row,
        "old": {"cnt": old},
    }


def debezium(row: dict[str, Any], old: int) -> dict[str, Any]:
    source = {
        "version": "2.7.0.Final",
        "connector": "mysql",
        "name": "shop",
        "ts_ms": 1589373515000,
        "snapshot": "false",
        "db": "shop",
        "sequence": None,
        "table": "product",
        "server_id": 1,
        "gtid": None,
        "file": "binlog.000003",
        "pos": 484,
        "row": 0,
        "thread": 7,
        "query": None,
    }
    return {
        "before": row | {"cnt": old},
        "after": row,
        "source": source,
        "op": "u",
        "ts_ms": 1589373515477,
        "transaction": None,
    }


def debezium_with_schema(row: dict[str, Any], old: int) -> dict[str, Any]:
    kinds = {"id": "int64", "name": "string", "cnt": "int32"}
    fields = [{"type": kind, "optional": True, "field": name} for name, kind in kinds.items()]
    images = [
        {"type": "struct", "fields": fields, "optional": True, "name": "shop.Value", "field": name}
        for name in ("before", "after")
    ]
    schema = {"type": "struct", "fields": images, "optional": False, "name": "shop.Envelope"}
    return {"schema": schema, "payload": debezium(row, old)}


_DECIMAL = {
    "type": "bytes",
    "connect.name": "org.apache.kafka.connect.data.Decimal",
    "connect.parameters": {"scale": "2", "connect.decimal.precision": "10"},
}
_AVRO_TYPES: dict[str, Any] = {
    "id": "long",
    "name": ["null", "string"],
    "cnt": ["null", "int"],
    "price": ["null", _DECIMAL],
    "description": ["null", "string"],
}


def avro_schema(columns: Iterable[str]) -> dict[str, Any]:
    """Return the schema of Debezium's messages of a table with these columns."""
    kinds: dict[type, Any] = {str: "string", int: "long", type(None): ["null", "string"]}
    source = {name: kinds[type(value)] for name, value in debezium({}, 0)["source"].items()}
    row = _record("Value", {name: _AVRO_TYPES[name] for name in columns})
    members = {
        "before": ["null", row],
        "after": ["null", "Value"],
        "source": _record("Source", source),
        "op": "string",
        "ts_ms": ["null", "long"],
        "transaction": ["null", "string"],
    }
    return _record("Envelope", members)


def _record(name: str, fields: dict[str, Any]) -> dict[str, Any]:
    listed = [{"name": field, "type": kind} for field, kind in fields.items()]
    return {"type": "record", "name": name, "fields": listed}


def avro_writer(schema: dict[str, Any]) -> Callable[[dict[str, Any]], bytes]:
    """Return a function that writes messages of a schema as Confluent's serializer does."""
    parsed = fastavro.parse_schema(schema)

    def write(message: dict[str, Any]) -> bytes:
        written = io.BytesIO(struct.pack(">BI", 0, 1))
        written.seek(0, io.SEEK_END)
        fastavro.schemaless_writer(written, parsed, message)
        return written.getvalue()

    return write


def changelog(row: dict[str, Any], _: int) -> dict[str, Any]:
    return {"op": "+U", "row": row, "epoch": 7, "seq": 12884901889}


def upsert(row: dict[str, Any], _: int) -> dict[str, Any]:
    return row


MESSAGES: dict[str, tuple[str, Callable[[dict[str, Any], int], dict[str, Any]]]] = {
    "canal-json": ("canal-json", canal),
    "maxwell-json": ("maxwell-json", maxwell),
    "debezium-json": ("debezium-json", debezium),
    "debezium-json with schema": ("debezium-json", debezium_with_schema),
    "debezium-avro": ("debezium-avro", debezium),
    "changelog-json": ("changelog-json", changelog),
    "upsert-json": ("upsert-json", upsert),
    "json": ("json", upsert),
}


def make_decode(format_name: str) -> Callable[[bytes], Decoded]:
    """Return the decode function of a format."""
    schema = (json.dumps(avro_schema(column.name for column in COLUMNS)),)
    rules = MessageRules(format_name, primary_key=("id",))
    return rules.decoder(COLUMNS, USED, find_schema=lambda _: schema).decode


def make_write(format_name: str) -> Callable[[dict[str, Any]], bytes]:
    """Return a function that writes messages of a format."""
    if format_name == "debezium-avro":
        return avro_writer(avro_schema(column.name for column in COLUMNS))
    return lambda message: json.dumps(message, separators=(",", ":")).encode()


def main(count: int = 100_000) -> None:
    for name, (format_name, written) in MESSAGES.items():
        dice, write = random.Random(1), make_write(format_name)
        values = [
            write(written(table_row(dice, 10**6 + number), dice.randrange(1_000)))
            for number in range(count)
        ]
        decode = make_decode(format_name)
        first = decode(values[0])
        assert isinstance(first, Changes), first
        best = float("inf")
        for _ in range(ROUNDS):
            began = time.perf_counter()
            for value in values:
                decode(value)
            best = min(best, time.perf_counter() - began)
        rows, size = len(first.changes), sum(map(len, values)) // count
        print(
            f"{name:28}{count / best:>12,.0f} messages/s{count * rows / best:>12,.0f} rows/s"
            f"{size:>8,} bytes"
        )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
