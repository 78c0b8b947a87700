"""Two hundred kinds of invalid messages, each made from a valid one.

    valid message ──► a kind: truncated, other bytes, other shape, unfitting value ──► bytes

A kind is a name and a function of the valid bytes; it is deterministic. No message may be applied
in part, although the rows before the invalid one are valid.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

COLUMNS = {
    "id": "BIGINT",
    "name": "STRING",
    "small": "TINYINT",
    "cnt": "INT",
    "price": "DECIMAL(10, 2)",
    "weight": "DOUBLE",
    "ok": "BOOLEAN",
    "day": "DATE",
    "at": "TIMESTAMP(3)",
}
Kind = Callable[[bytes], bytes]

# Bytes that are not UTF-8: stray ones, too long forms, surrogates, beyond Unicode, cut short.
NOT_UTF8 = [
    b"\xff",
    b"\xfe\xff",
    b"\x80",
    b"\xbf",
    b"\xc0\x80",
    b"\xc1\xbf",
    b"\xe0\x80\xaf",
    b"\xe0\x9f\xbf",
    b"\xed\xa0\x80",
    b"\xed\xbf\xbf",
    b"\xf0\x80\x80\xaf",
    b"\xf0\x8f\xbf\xbf",
    b"\xf4\x90\x80\x80",
    b"\xf5\x80\x80\x80",
    b"\xf8\x88\x80\x80\x80",
    b"\xfc\x84\x80\x80\x80\x80",
    b"\xc3",
    b"\xe2\x82",
    b"\xf0\x9f\x98",
    b"\xc3(",
]
NOT_A_MESSAGE = [
    b"[]", b"[1]", b"1", b"-1.5", b'"text"', b"true", b"null", b"{", b"}", b"nul", b"NaN",
    b"'a'", b"{'a': 1}", b"{a: 1}", b'{"a" 1}', b'{"a": }', b'{"a": 1,}', b"{,}", b"<xml/>",
    b"// {}", b"/* */ {}", b"\x00", b" ", b"\xef\xbb\xbf", b"\x1f\x8b\x08\x00", b"PK\x03\x04",
    b"\x00\x00\x00\x00\x07{}", b'{"data": "\\x"}', b'{"data": "\\u12"}', b'{"data": 01}',
    b'{"data": +1}', b'{"data": .5}', b'{"data": 1.}', b'{"data": 0x1}', b'{"data": Infinity}',
]  # fmt: skip
TYPES: list[Any] = ["UPSERT", "insert", "", " INSERT", "INSERT ", "INS", 7, None, {}, [], True]
NOT_ROWS: list[Any] = [None, 7, "rows", True, {}, {"0": {}}]
NOT_A_ROW: list[Any] = [None, 7, "row", True, [], [{}]]
NOT_OLD: list[Any] = [None, [], 7, "old", {}, [7], ["old"], [[]], [None]]
VALUES: dict[str, list[Any]] = {
    "id": [
        "one",
        "",
        "1.5",
        "9223372036854775808",
        "-9223372036854775809",
        "1" * 1_000,
        {},
        [],
        "0x10",
        "NaN",
        "1 x",
        "--1",
    ],
    "small": ["128", "-129", "x", {}, [], "1.25"],
    "cnt": [
        "three",
        "2147483648",
        "-2147483649",
        "3.9",
        "9" * 300,
        {},
        [],
        "1,000",
        "Infinity",
        "0b1",
        "1_0x",
        "+-1",
    ],
    "price": ["123456789.00", "abc", "1e400", {}, [], "NaN", "1.2.3", "$5", "9" * 500, "-"],
    "weight": ["abc", {}, [], "1.2.3", "0x1p3z", "--1", "1e", "one"],
    "ok": [{}, []],
    "day": [
        "2026-02-30",
        "2026-13-01",
        "yesterday",
        {},
        [],
        "2026-00-01",
        "2026/01/01",
        "31.12.2026",
        "x" * 200,
    ],
    "at": [
        "2026-02-30 00:00:00",
        "2026-01-01 25:00:00",
        "now",
        {},
        [],
        "2026-01-01 00:61:00",
        "noon",
        "2026-13-01 00:00:00",
    ],
}


def kinds() -> Iterator[tuple[str, Kind]]:
    """Yield all kinds with their names."""
    for share in range(1, 20):
        yield f"cut after {5 * share} %", _cut(share / 20)
    for bad in NOT_UTF8:
        yield f"not UTF-8 in a name: {bad.hex()}", _with_bytes(b'"name": "', bad)
        yield f"not UTF-8 where nobody reads: {bad.hex()}", _with_bytes(b'"pkNames": ["', bad)
    for text in NOT_A_MESSAGE:
        yield f"no message: {text!r}", _constant(text)
    for value in TYPES:
        yield f"type {value!r}", _with(lambda m, v: m.update(type=v), value)
    yield "no type", _with(lambda m, _: m.pop("type"), None)
    for value in NOT_ROWS:
        yield f"data {value!r}", _with(lambda m, v: m.update(data=v), value)
    yield "no data", _with(lambda m, _: m.pop("data"), None)
    for value in NOT_A_ROW:
        yield f"a row {value!r}", _with(lambda m, v: m["data"].append(v), value)
    for value in NOT_OLD:
        yield f"old {value!r}", _with(lambda m, v: m.update(type="UPDATE", old=v), value)
    for column, values in VALUES.items():
        for value in values:
            shown = repr(value)[:30]
            yield f"{column} is {shown}", _with(_last_row(column), value)
    for depth in (65, 200, 1_001, 5_000):
        yield f"nested {depth} deep in arrays", _nested(b"[", b"]", depth)
        yield f"nested {depth} deep in objects", _nested(b'{"a":', b"}", depth)
    for digits in (2_000, 100_000):
        yield f"a number of {digits} digits", _with(_last_row("cnt"), "7" * digits)
        yield f"a fraction of {digits} digits", _with(_last_row("id"), "1." + "7" * digits)


def _cut(share: float) -> Kind:
    return lambda good: good[: max(1, int(len(good) * share))]


def _constant(text: bytes) -> Kind:
    return lambda _good: text


def _with_bytes(before: bytes, bad: bytes) -> Kind:
    return lambda good: good.replace(before, before + bad, 1)


def _with(change: Callable[[dict[str, Any], Any], object], value: Any) -> Kind:
    def spoilt(good: bytes) -> bytes:
        message = json.loads(good)
        change(message, value)
        return json.dumps(message).encode()

    return spoilt


def _last_row(column: str) -> Callable[[dict[str, Any], Any], object]:
    return lambda message, value: message["data"][-1].update({column: value})


def _nested(opened: bytes, closed: bytes, depth: int) -> Kind:
    """Nest values in an unused member, long enough that the decoder checks the depth."""

    def spoilt(good: bytes) -> bytes:
        inner = opened * depth + b"1" + closed * depth
        padding = b" " * 1_100
        return good[:-1] + b', "more": ' + inner + padding + b"}"

    return spoilt


def good_message(number: int, rows: int = 2) -> bytes:
    """Return an INSERT of some rows; their values depend on the number only."""
    data = [
        {
            "id": str(number * 10 + place),
            "name": f"group {number % 17}",
            "small": "7",
            "cnt": str(number % 1_000),
            "price": f"{number % 100}.25",
            "weight": "1.5",
            "ok": "1",
            "day": "2026-01-02",
            "at": "2026-01-02 03:04:05.678",
        }
        for place in range(rows)
    ]
    message = {
        "data": data,
        "database": "shop",
        "es": 1_700_000_000_000 + number,
        "isDdl": False,
        "old": None,
        "pkNames": ["id"],
        "table": "items",
        "ts": 1,
        "type": "INSERT",
    }
    return json.dumps(message).encode()
