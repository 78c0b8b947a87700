"""Compare a scanner with the decoder of its format, message by message, damaged ones too."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from jobs.core.formats.registry import MessageDecoder, MessageRules
from jobs.core.formats.scanned import Array, Scanned, Scanner
from jobs.core.kernels.codes import FILTERED, NO_TIME, UNUSUAL
from jobs.core.kernels.json_bytes import PAD
from jobs.core.plan.tree import Column
from jobs.core.values.change import Changes, Filtered
from schemas.types.sql_types import SqlType

RECORDING = Path(__file__).resolve().parents[1] / "recordings" / "mysql-kinds.json.gz"
TYPES = {
    "id": "BIGINT",
    "name": "STRING",
    "cnt": "INT",
    "price": "DECIMAL(6, 2)",
    "whole": "DECIMAL(3)",
    "wide": "DECIMAL(30, 10)",
    "at": "TIMESTAMP(3)",
    "zoned": "TIMESTAMP_LTZ(6)",
    "nanos": "TIMESTAMP(9)",
    "zoned_nanos": "TIMESTAMP_LTZ(7)",
    "unsigned": "DECIMAL(20)",
    "ok": "BOOLEAN",
    "rate": "DOUBLE",
    "single": "FLOAT",
    "raw": "BINARY",
    "day": "DATE",
    "noon": "TIME",
    "tiny": "TINYINT",
    "größe": "SMALLINT",
}
COLUMNS = tuple(Column(name, SqlType.parse(kind)) for name, kind in TYPES.items())
USUAL: dict[str, list[Any]] = {
    "id": ["1", "22", "-3", "007", None, "9223372036854775807", "-9223372036854775808", 5, -7, 0],
    "name": [
        "a",
        "",
        "Grüße",
        "日本",
        "\U0001f600",
        None,
        "tab\t",
        "/",
        7,
        'a "quoted" \\ word',
        "\u0000",
        -3,
        True,
        False,
        "x" * 100,
        "null",
    ],
    "cnt": ["1", "2147483647", "-2147483648", None, 5],
    "price": ["1.00", "-2.50", "9999.99", "1.5", "7", "0012.00", "-0.00", None],
    "whole": ["1", "999", "-9", None],
    "wide": ["12345678.0123456789", "1.5", "-99999999999999999999.9999999999", "0", 2.5, None],
    "at": ["2026-01-02 03:04:05.678", "2026-01-02 03:04:05", "0001-01-01 00:00:00", None],
    "zoned": ["2024-02-29 23:59:59.999999Z", "1969-12-31 00:00:00Z", None],
    "nanos": [
        "2026-01-02 03:04:05.123456789",
        "2026-01-02 03:04:05",
        "1969-12-31 23:59:59.9999999",
        "1677-09-22 00:00:00.1",
        "2262-04-10 23:59:59.999999999",
        None,
    ],
    "zoned_nanos": ["2024-02-29 23:59:59.1234567Z", "1969-12-31 00:00:00Z", None],
    "unsigned": ["18446744073709551615", "0", "-5", None],
    "ok": ["1", "0", "true", "FALSE", True, False, 1, 0, None],
    "rate": ["1.5", "-0.0", "1234567890.1234567", "3", "2.2250738585072014E-308", 1e300, None],
    "single": ["1.5", "-0.0", "16777217", "0.1", "1.17549E-38", "3.4e37", None],
    "raw": ["abcd", "", "\u0000\u00ff\u0080", "Ã¤", None],
    "day": ["2026-01-02", "2000-02-29", "9999-12-31", "0001-01-01", "1970-01-01", None],
    "noon": ["12:38:35", "00:00:00", "12:38:35.500000", "23:59:59.000001", "01:00:00.0", None],
    "tiny": ["127", "-128", None],
    "größe": ["1", None],
}
ROW = {name: values[0] for name, values in USUAL.items()}
OTHER_FORMS: dict[str, list[Any]] = {  # of formats whose numbers are numbers, and bytes base64
    "single": [1.5, -0.0, 16777217, 0.1, 1.17549e-38, None],
    "raw": ["AJY=", "", "/w==", "abcd", None],
}
MAXWELL_USUAL = USUAL | OTHER_FORMS
MAXWELL_ROW = ROW | {name: values[0] for name, values in OTHER_FORMS.items()}


def escaped(text: str) -> str:
    """Return the text with escapes in values, and none in names of columns and tables."""
    for character in "ü日\U0001f600":
        text = text.replace(character, json.dumps(character)[1:-1])
    return text


def scanner(made: MessageDecoder) -> Scanner:
    found = made.make_scanner()
    assert found is not None
    return found


def within_others(values: list[bytes | None]) -> tuple[Array, Array]:
    """Return a buffer with other messages around these, and where these are."""
    texts = [b'{"data": [', *(value or b"" for value in values), b'": 1}', bytes(PAD)]
    starts = np.cumsum([0, *(len(text) + 1 for text in texts)]).astype(np.int64)
    return np.frombuffer(b"\0".join(texts), np.uint8), starts[1 : len(values) + 2]


def check(made: MessageDecoder, values: list[bytes | None]) -> Scanned:
    """Compare a scan with the decoder, message by message."""
    of_source = scanner(made)
    scanned = of_source.scan(values)
    changes = scanned.changes()
    of_buffer = of_source.scan_buffer(*within_others(values))
    assert of_buffer.outcomes.tolist() == scanned.outcomes.tolist()
    assert str(of_buffer.changes()) == str(changes)
    for number, value in enumerate(values):
        own = [changes[place] for place in (scanned.owners == number).nonzero()[0]]
        outcome = scanned.outcomes[number]
        if outcome == UNUSUAL:
            assert not own
            continue
        wanted = made.decode(value)
        if outcome == FILTERED:
            assert isinstance(wanted, Filtered) and not own
            continue
        assert isinstance(wanted, Changes), (value, wanted)
        # As text: -0.0 is not like 0.0.
        assert str(own) == str(wanted.changes), value
        for name in ("es", "ts", "id"):
            found, stamp = getattr(scanned, name.replace("id", "ids")), getattr(wanted, name)
            assert found[number] == (NO_TIME if stamp is None else stamp)
    return scanned


BYTES = b'{}[]",:\\ \x00\x1f0123456789-+.eEtfnu\xc3\xed\xf0\x80\xa0\xbf\xff'


def mutate(dice: random.Random, usual: Sequence[bytes]) -> bytes:
    """Return a message with some bytes replaced, removed, repeated or moved."""
    value = bytearray(dice.choice(usual))
    for _ in range(dice.choice([1, 1, 1, 2, 3, 8])):
        at = dice.randrange(len(value))
        how = dice.randrange(6)
        if how == 0:
            value[at] = dice.choice(BYTES)
        elif how == 1:
            value[at] ^= 1 << dice.randrange(8)
        elif how == 5 and 48 <= value[at] <= 57:
            value[at] = dice.choice(b"0123456789")
        elif how == 2:
            del value[at : at + dice.choice([1, 1, 2, 10, 100])]
        elif how == 3:
            value[at:at] = value[at : at + dice.choice([1, 2, 10])]
        else:
            del value[at:]
        if not value:
            return b""
    return bytes(value)


def check_mutants(source_format: str, count: int, seed: int) -> int:
    """Compare so many damaged messages, and return how many of them are still usual."""
    dice, decoders = random.Random(seed), make_decoders(source_format)
    good = 0
    for start in range(0, count, 500):
        values: list[bytes | None] = [
            mutate(dice, USUAL_MESSAGES[source_format]) for _ in range(500)
        ]
        scanned = check(decoders[start // 500 % len(decoders)], values)
        good += len(values) - len(scanned.unusual)
    return good


def rows_of(values: dict[str, list[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({name: st.sampled_from(each) for name, each in values.items()})


# canal-json


def canal_decoder(**rules: Any) -> MessageDecoder:
    return MessageRules("canal-json", **rules).decoder(COLUMNS, COLUMNS[1:])


# Types as canal writes them; "sent" is a label of a column that the job reads as a number.
MYSQL_TYPES = {
    "id": "bigint unsigned",
    "name": "varchar(255)",
    "cnt": "enum('new','sent')",
    "undeclared": "set('a','b')",
}


def canal_message(**members: Any) -> bytes:
    envelope = {"data": [ROW], "type": "INSERT", "es": 1_000, "ts": 2_000, "isDdl": False}
    return json.dumps(envelope | members, ensure_ascii=False).encode("utf-8", "surrogatepass")


def read_all_types() -> tuple[list[bytes], MessageDecoder]:
    """Return what canal sent of a table of all types, and a decoder of all its columns."""
    sent = json.loads(gzip.decompress(RECORDING.read_bytes()))
    columns = tuple(Column(name, SqlType.parse(kind)) for name, kind in sent["columns"].items())
    messages = [each for partition in sent["partitions"] for each in partition]
    rules = MessageRules("canal-json", table=sent["table"])
    values = [each.encode() for each in messages if '"isDdl":true' not in each]
    return values, rules.decoder(columns, columns)


# maxwell-json


def maxwell_decoder(**rules: Any) -> MessageDecoder:
    return MessageRules("maxwell-json", **rules).decoder(COLUMNS, COLUMNS[1:])


def maxwell_message(**members: Any) -> bytes:
    envelope = {"database": "shop", "table": "product", "type": "insert", "ts": 1_700_000_000}
    return _encode(envelope | {"xid": 7, "commit": True, "data": MAXWELL_ROW} | members)


# debezium-json, as its connectors write it by default

DEBEZIUM_TYPES = {name: kind for name, kind in TYPES.items() if kind != "TIME"} | {
    "micros": "TIMESTAMP(6)"
}
DEBEZIUM_COLUMNS = tuple(Column(n, SqlType.parse(kind)) for n, kind in DEBEZIUM_TYPES.items())
DEBEZIUM_USUAL: dict[str, list[Any]] = {
    name: MAXWELL_USUAL[name] for name in DEBEZIUM_TYPES if name in USUAL
} | {
    "id": [1, 22, -3, None, 999999999999999999, "5", 0],
    "price": ["AJY=", "/w==", "AA==", "D0I/", 1.5, -7, "1.50", "-3.25", None],
    "whole": ["A+c=", "/Bk=", "Ag==", "12", None],
    "wide": ["AJY=", "AAAAAAAAAAAA", "/w==", "B////////////////w==", "1.5", 2.5, "-17", None],
    "unsigned": ["AP//////////", "AA==", "BWvHXi1jD///", "+pQ4odKc8AEB", "12345", -5, None],
    "at": [1_700_000_000_123, 0, -1, -62_135_596_800_000, 253_402_300_799_999, None],
    "micros": [1_700_000_000_123_456, 0, -1, None],
    "nanos": [1_700_000_000_123_456_789, 0, -1, 2**63 - 1, -(2**63) + 1, None],
    "zoned_nanos": ["2024-02-29T23:59:59.1234567Z", "1969-12-31T00:00:00Z", 1_700_000_000, None],
    "zoned": ["2024-02-29T23:59:59.999999Z", "1969-12-31T00:00:00Z", 1_700_000_000_123_456, None],
    "day": [20_455, 0, -719_162, 2_932_896, "2026-01-02", None],
    "tiny": [127, -128, None],
}
DEBEZIUM_ROW = {name: values[0] for name, values in DEBEZIUM_USUAL.items()}
DEBEZIUM_SOURCE = {
    "version": "2.7.0",
    "connector": "mysql",
    "name": "shop",
    "ts_ms": 1_000,
    "snapshot": "false",
    "db": "shop",
    "sequence": None,
    "table": "product",
    "server_id": 1,
    "pos": 17,
    "row": 0,
}


def debezium_decoder(**rules: Any) -> MessageDecoder:
    return MessageRules("debezium-json", **rules).decoder(DEBEZIUM_COLUMNS, DEBEZIUM_COLUMNS[1:])


def debezium_message(**members: Any) -> bytes:
    envelope = {"before": None, "after": DEBEZIUM_ROW, "source": DEBEZIUM_SOURCE, "op": "c"}
    return _encode(envelope | {"ts_ms": 2_000, "transaction": None} | members)


def _encode(message: dict[str, Any]) -> bytes:
    return json.dumps(message, ensure_ascii=False).encode("utf-8", "surrogatepass")


# Usual messages, also to damage, and the decoders to compare the scanner with

_TEXTS = {"cnt": "4", "name": "ü\U0001f600\n"}
_ESCAPED = escaped(canal_message(data=[ROW | {"name": "\U0001f600ü"}]).decode())
USUAL_MESSAGES = {
    "canal": [
        canal_message(),
        canal_message(type="UPDATE", old=[_TEXTS]),
        canal_message(type="DELETE", data=[ROW, ROW], table="product", sqlType={"a": [-2.5e7]}),
        canal_message(mysqlType=MYSQL_TYPES),
        _ESCAPED.replace(",", " ,\n").encode(),
    ],
    "maxwell": [
        maxwell_message(),
        maxwell_message(type="update", old=_TEXTS),
        maxwell_message(type="bootstrap-insert"),
        maxwell_message(type="delete", extra={"a": [1, -2.5e7, True]}),
    ],
    "debezium": [
        debezium_message(),
        debezium_message(op="u", before=DEBEZIUM_ROW | _TEXTS),
        debezium_message(op="d", before=DEBEZIUM_ROW, after=None),
    ],
}


def make_decoders(source_format: str) -> list[MessageDecoder]:
    """Return decoders with different rules."""
    if source_format == "debezium":
        last_images = debezium_decoder(last_images=True)
        return [last_images, *_with_rules(debezium_decoder)]
    return _with_rules(canal_decoder if source_format == "canal" else maxwell_decoder)


def _with_rules(make: Callable[..., MessageDecoder]) -> list[MessageDecoder]:
    return [make(), make(table="product"), make(missing_is_null=True)]
