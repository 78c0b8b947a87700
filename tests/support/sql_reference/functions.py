"""Functions in docs/sql.md, made from the table of scalar functions; a test runs each
example in Spark, and in Python where a function is possible over aggregates."""

from __future__ import annotations

import json

from jobs.core.plan.scalar_functions import CONSTANTS, FUNCTIONS, SYNONYMS
from jobs.core.values.json_values import Json

# Of each function a call and its value, as results and JSON have it.
EXAMPLES: dict[str, tuple[str, Json]] = {
    "UPPER": ("UPPER('Bolt')", "BOLT"),
    "LOWER": ("LOWER('Bolt')", "bolt"),
    "TRIM": ("TRIM('  bolt ')", "bolt"),
    "LTRIM": ("LTRIM('007', '0')", "7"),
    "RTRIM": ("RTRIM('1.50', '0')", "1.5"),
    "BTRIM": ("BTRIM('--bolt-', '-')", "bolt"),
    "REPLACE": ("REPLACE('a-b-c', '-', '+')", "a+b+c"),
    "SUBSTRING": ("SUBSTRING('bracket', 2, 4)", "rack"),
    "CONCAT": ("CONCAT('a', '-', 'b')", "a-b"),
    "CHAR_LENGTH": ("CHAR_LENGTH('bolt')", 4),
    "ABS": ("ABS(-3)", 3),
    "SIGN": ("SIGN(-3)", -1),
    "FLOOR": ("FLOOR(-1.5)", "-2"),
    "CEIL": ("CEIL(1.01)", "2"),
    "ROUND": ("ROUND(1.255, 2)", "1.26"),
    "GREATEST": ("GREATEST(1, 7, 3)", 7),
    "LEAST": ("LEAST(1, 7, 3)", 1),
    "COALESCE": ("COALESCE(NULL, 'none')", "none"),
    "LEFT": ("LEFT('bracket', 4)", "brac"),
    "RIGHT": ("RIGHT('bracket', 3)", "ket"),
    "REVERSE": ("REVERSE('bolt')", "tlob"),
    "REPEAT": ("REPEAT('ab', 3)", "ababab"),
    "LPAD": ("LPAD('7', 3, '0')", "007"),
    "RPAD": ("RPAD('7', 3, '.')", "7.."),
    "TRANSLATE": ("TRANSLATE('2026-01-31', '-', '/')", "2026/01/31"),
    "SPLIT_INDEX": ("SPLIT_INDEX('a,b,c', ',', 1)", "b"),
    "CONCAT_WS": ("CONCAT_WS('-', 'a', NULL, 'b')", "a-b"),
    "POSITION": ("POSITION('ck' IN 'bracket')", 4),
    "STARTSWITH": ("STARTSWITH('bracket', 'bra')", True),
    "ENDSWITH": ("ENDSWITH('bracket', 'bra')", False),
    "MD5": ("MD5('a')", "0cc175b9c0f1b6a831c399e269772661"),
    "SHA256": ("SHA256('a')", "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"),
    "TRUNCATE": ("TRUNCATE(1.999, 1)", "1.9"),
    "SQRT": ("SQRT(16)", 4.0),
    "EXP": ("EXP(0)", 1.0),
    "LN": ("LN(1)", 0.0),
    "LOG10": ("LOG10(1000)", 3.0),
    "LOG2": ("LOG2(8)", 3.0),
    "POWER": ("POWER(2, 10)", 1024.0),
    "LOG": ("LOG(2, 8)", 3.0),
    "GROUPING": ("GROUPING(k)", 0),
    "YEAR": ("YEAR(DATE '2026-01-31')", 2026),
    "QUARTER": ("QUARTER(DATE '2026-05-01')", 2),
    "MONTH": ("MONTH(DATE '2026-01-31')", 1),
    "WEEK": ("WEEK(DATE '2024-12-30')", 1),
    "DAYOFYEAR": ("DAYOFYEAR(DATE '2026-02-01')", 32),
    "DAYOFMONTH": ("DAYOFMONTH(DATE '2026-01-31')", 31),
    "DAYOFWEEK": ("DAYOFWEEK(DATE '2026-02-01')", 1),
    "HOUR": ("HOUR(TIMESTAMP '2026-01-31 12:34:56')", 12),
    "MINUTE": ("MINUTE(TIMESTAMP '2026-01-31 12:34:56')", 34),
    "SECOND": ("SECOND(TIMESTAMP '2026-01-31 12:34:56')", 56),
    "DATE_TRUNC": ("DATE_TRUNC('HOUR', TIMESTAMP '2026-01-31 12:34:56')", "2026-01-31 12:00:00"),
    "TIMESTAMPADD": ("TIMESTAMPADD(MONTH, 1, DATE '2026-01-31')", "2026-02-28"),
    "TIMESTAMPDIFF": ("TIMESTAMPDIFF(DAY, DATE '2026-01-01', DATE '2026-01-31')", 30),
    "DATE_FORMAT": ("DATE_FORMAT(DATE '2026-01-31', 'dd.MM.yyyy')", "31.01.2026"),
    "TO_DATE": ("TO_DATE('31.01.2026', 'dd.MM.yyyy')", "2026-01-31"),
    "TO_TIMESTAMP": ("TO_TIMESTAMP('2026-01-31 12:34', 'yyyy-MM-dd HH:mm')", "2026-01-31 12:34:00"),
    "TO_TIMESTAMP_LTZ": ("TO_TIMESTAMP_LTZ(1500, 3)", "1970-01-01 00:00:01.5Z"),
    "JSON_VALUE": ("""JSON_VALUE('{"a": {"b": [1, 2]}}', '$.a.b[0]')""", "1"),
    "JSON_QUERY": ("""JSON_QUERY('{"a": {"b": [1, 2]}}', '$.a')""", '{"b":[1,2]}'),
    "JSON_EXISTS": ("""JSON_EXISTS('{"a": null}', '$.a')""", True),
}

_HEAD = """\
## Functions

A function may be used wherever an expression may: over rows, over aggregates (`HAVING`,
`SUM(a) / COUNT(*)`), and in the time of a row.

NULL gives NULL, except in COALESCE and CONCAT_WS. A function marked *may fail* can fail on a row,
and so can ABS and ROUND beyond the range of their type. The row's message then goes to quarantine
with the reason; over aggregates the result is NULL and counted.

| function | takes | | example | gives |
| --- | --- | --- | --- | --- |
"""


def functions_section() -> str:
    rows = []
    for name in sorted(FUNCTIONS):
        signature = FUNCTIONS[name]
        also = sorted(known for known, meant in SYNONYMS.items() if meant == name)
        title = name + (f" ({', '.join(also)})" if also else "")
        takes = ", ".join(map(_family, signature.families)) + (", ..." if signature.repeats else "")
        note = "may fail" if signature.can_fail else ""
        example, value = EXAMPLES[name]
        rows.append(f"| {title} | {takes} | {note} | `{example}` | `{json.dumps(value)}` |")
    return _HEAD + "\n".join(rows) + "\n"


def _family(family: str) -> str:
    return f"*{family}*" if family in CONSTANTS else family
