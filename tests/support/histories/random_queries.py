"""Random expressions and queries inside the grammar, as SQL text, by type."""

from __future__ import annotations

from random import Random

from schemas.types.sql_types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    STRING,
    TINYINT,
    SqlType,
    decimal,
    timestamp,
)

COLUMNS: dict[str, SqlType] = {
    "s": STRING,
    "r": STRING,
    "t": TINYINT,
    "i": INT,
    "l": BIGINT,
    "f": FLOAT,
    "d": DOUBLE,
    "m": decimal(10, 2),
    "w": decimal(38, 3),
    "b": BOOLEAN,
    "day": DATE,
    "at": timestamp(6),
    "seen": timestamp(3, local_zone=True),
    "x": BINARY,
}
_NUMBERS = ("t", "i", "l", "f", "d", "m", "w", "0", "1", "7", "2.50", "3000000000", "1.5e2", "-3")
_TEXTS = ("s", "r", "''", "'it''s'", "'12'", "'\\'", "'%a_'")
_MOMENTS = ("day", "at", "seen")


def number(random: Random, depth: int) -> str:
    if depth <= 0:
        return random.choice(_NUMBERS)
    a, b = number(random, depth - 1), number(random, depth - 1)
    return random.choice(
        (
            f"({a} {random.choice('+-*/%')} {b})",
            f"({a} {random.choice('+-*')} {b})",
            f"-({a})",
            f"CASE WHEN {truth(random, depth - 1)} THEN {a} ELSE {b} END",
            f"IF({truth(random, depth - 1)}, {a}, NULL)",
            f"COALESCE({a}, {b})",
            f"NULLIF({a}, {b})",
            f"{random.choice(('ABS', 'SIGN', 'FLOOR', 'CEIL', 'ROUND'))}({a})",
            f"ROUND({a}, {random.randint(-2, 3)})",
            f"{random.choice(('GREATEST', 'LEAST'))}({a}, {b})",
            f"CHAR_LENGTH({text(random, depth - 1)})",
            f"YEAR({random.choice(_MOMENTS)})",
            f"HOUR({random.choice(_MOMENTS[1:])})",
            f"TRY_CAST({text(random, depth - 1)} AS DECIMAL(12, 3))",
            f"CAST({a} AS {random.choice(('TINYINT', 'INT', 'BIGINT', 'DOUBLE', 'FLOAT'))})",
            f"CAST({text(random, depth - 1)} AS {random.choice(('INT', 'DOUBLE'))})",
            f"CAST({truth(random, depth - 1)} AS INT)",
            f"{random.choice(('SQRT', 'EXP', 'LN', 'LOG10', 'LOG2'))}({a})",
            f"{random.choice(('POWER', 'LOG'))}({a}, {b})",
            f"TRUNCATE({random.choice(('m', 'w', 'i', 'l'))}, {random.randint(-2, 3)})",
            f"POSITION({text(random, depth - 1)} IN {text(random, depth - 1)})",
            f"TIMESTAMPDIFF({random.choice(_UNITS)}, {moment(random, 1)}, {moment(random, 1)})",
            f"EXTRACT({random.choice(('WEEK', 'QUARTER', 'DOW', 'DOY'))} FROM {moment(random, 1)})",
        )
    )


_UNITS = ("SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR")


def moment(random: Random, depth: int) -> str:
    if depth <= 0:
        return random.choice(_MOMENTS)
    of_date = random.choice(_UNITS[3:])
    unit = random.choice(_UNITS)
    count = random.choice(("t", "i", "-1", "12"))
    return random.choice(
        (
            f"TIMESTAMPADD({of_date}, {count}, day)",
            f"TIMESTAMPADD({unit}, {count}, {random.choice(_MOMENTS[1:])})",
            f"{random.choice(_MOMENTS)} {random.choice('+-')} INTERVAL '3' {of_date}",
            f"FLOOR({random.choice(_MOMENTS[1:])} TO {unit})",
            f"DATE_TRUNC('{of_date}', day)",
            f"TO_TIMESTAMP_LTZ({random.choice(('t', 'i', 'l'))}, {random.choice((0, 3))})",
            f"TO_DATE({text(random, 0)}, 'dd.MM.yyyy')",
            f"TO_TIMESTAMP({text(random, 0)}, 'yyyy-MM-dd')",
        )
    )


def text(random: Random, depth: int) -> str:
    if depth <= 0:
        return random.choice(_TEXTS)
    a, b = text(random, depth - 1), text(random, depth - 1)
    return random.choice(
        (
            f"{random.choice(('UPPER', 'LOWER', 'TRIM', 'LTRIM', 'RTRIM'))}({a})",
            f"SUBSTRING({a}, {random.randint(-2, 3)}, 2)",
            f"({a} || {b})",
            f"REPLACE({a}, {b}, 'z')",
            f"COALESCE({a}, {b})",
            f"CASE {a} WHEN {b} THEN 'same' END",
            f"CAST({number(random, depth - 1)} AS STRING)",
            f"CAST({moment(random, depth - 1)} AS STRING)",
            f"{random.choice(('LEFT', 'RIGHT'))}({a}, {random.choice(('t', 'i', '2', '-1'))})",
            f"{random.choice(('LPAD', 'RPAD'))}({a}, {random.randint(0, 9)}, 'é')",
            f"{random.choice(('REVERSE', 'MD5', 'SHA256'))}({a})",
            f"TRIM(BOTH 'a ' FROM {a})",
            f"REPEAT({a}, {random.randint(0, 3)})",
            f"TRANSLATE({a}, 'a%', 'x')",
            f"SPLIT_INDEX({a}, ';', {random.choice(('t', 'i', '0', '1'))})",
            f"CONCAT_WS('-', {a}, {b})",
            f"DATE_FORMAT({moment(random, depth - 1)}, 'yyyy-MM-dd HH:mm:ss.SSS')",
            f"{random.choice(('JSON_VALUE', 'JSON_QUERY'))}({a}, '$.a[0]')",
            f"CAST(x AS {random.choice(('STRING', 'VARCHAR'))})",
        )
    )


def truth(random: Random, depth: int) -> str:
    if depth <= 0:
        return random.choice(("b", "TRUE", "FALSE", "i > 1", "s IS NULL", "NOT b"))
    a, b = truth(random, depth - 1), truth(random, depth - 1)
    n, o = number(random, depth - 1), number(random, depth - 1)
    s = text(random, depth - 1)
    return random.choice(
        (
            f"({a} AND {b})",
            f"({a} OR {b})",
            f"NOT {a}",
            f"{n} {random.choice(('=', '<>', '<', '<=', '>', '>='))} {o}",
            f"{n} BETWEEN {o} AND 5",
            f"{n} IN ({o}, 3)",
            f"{s} NOT IN ('a', r)",
            f"{s} LIKE '%!_x%' ESCAPE '!'",
            f"{s} NOT LIKE 'a%'",
            f"({n}) IS NOT NULL",
            f"({a}) IS NOT TRUE",
            f"CAST({s} AS BOOLEAN)",
            "day > DATE '2024-02-29'",
            f"{n} IS DISTINCT FROM {o}",
            f"{random.choice(('STARTSWITH', 'ENDSWITH'))}({s}, r)",
            f"JSON_EXISTS({s}, '$.a')",
            "at <= TIMESTAMP '2024-02-29 12:00:00.5'",
            "x = X'00FF'",
            "day IN ('2024-02-29', NULL)",
            "seen BETWEEN '2024-02-29 00:00:00+01:00' AND '2026-01-31'",
            "at - TIMESTAMP '2024-02-29 12:00:00' >= INTERVAL '90' MINUTE",
            "at > TIMESTAMP '2024-02-29 12:00:00' - t * INTERVAL '2' DAY",
        )
    )


def expression(random: Random, depth: int = 3) -> str:
    return random.choice((number, text, truth))(random, depth)


def aggregate(random: Random) -> str:
    n, o = number(random, 2), number(random, 1)
    s, t = text(random, 1), truth(random, 1)
    function = random.choice(("COUNT", "SUM", "AVG", "MIN", "MAX"))
    if random.random() < 0.4:
        return f"{function}({n})"
    down = random.choice(("", " DESC", " NULLS LAST", " DESC NULLS FIRST"))
    return random.choice(
        (
            f"{function}(DISTINCT {n})",
            f"COUNT(DISTINCT {n}, {s})",
            f"{random.choice(('VAR_POP', 'VARIANCE', 'STDDEV_POP', 'STDDEV'))}({n})",
            f"{random.choice(('BOOL_AND', 'BOOL_OR', 'EVERY', 'SOME'))}({t})",
            f"FIRST_VALUE({s} ORDER BY {o}{down})",
            f"LAST_VALUE({n} ORDER BY {s}{down}, {o})",
            f"FIRST({s} ORDER BY {s}{down}, {o})",
            f"{random.choice(('ARG_MIN', 'ARG_MAX', 'MIN_BY', 'MAX_BY'))}({s}, {o})",
            f"STRING_AGG({s}, ', ' ORDER BY {o}{down})",
            f"LISTAGG(DISTINCT {s}, '''') WITHIN GROUP (ORDER BY {s} DESC)",
            f"ARRAY_AGG({n} ORDER BY {o}{down})",
            f"ARRAY_AGG({s} IGNORE NULLS)",
            f"TOP_K(DISTINCT {n}, 3)",
            f"MEDIAN({n})",
            f"PERCENTILE_CONT(0.05) WITHIN GROUP (ORDER BY {n} DESC)",
            f"PERCENTILE_DISC(0.123456789) WITHIN GROUP (ORDER BY {s})",
            f"MODE({s})",
            f"ANY_VALUE({s})",
        )
    )


def query(random: Random) -> str:
    """Return a query with random GROUP BY, aggregates, FILTERs and WHERE."""
    keys = [expression(random, 1) for _ in range(random.randint(0, 2))]
    keys = [f"COALESCE({key}, NULL)" if key.lstrip("-").isdigit() else key for key in keys]
    items = [f"{key} AS k{index}" for index, key in enumerate(keys) if random.random() < 0.8]
    for index in range(random.randint(1, 3)):
        call = aggregate(random)
        chosen = f" FILTER (WHERE {truth(random, 1)})" if random.random() < 0.3 else ""
        named = f" AS a{index}" if random.random() < 0.5 else ""
        items.append(f"{call}{chosen}{named}")
    if random.random() < 0.3:
        items.append(f"COALESCE(MAX({number(random, 1)}), 0) {random.choice('+-*/')} COUNT(*)")
    where = f" WHERE {truth(random, 2)}" if random.random() < 0.5 else ""
    group = f" GROUP BY {', '.join(keys)}" if keys else ""
    if keys and random.random() < 0.3:
        group = f" GROUP BY {random.choice(('ROLLUP', 'CUBE', 'GROUPING SETS'))}({', '.join(keys)})"
        items.append(f"GROUPING({keys[0]})")
    having = " HAVING COUNT(*) > 1 OR MAX(i) IS NULL" if random.random() < 0.3 else ""
    return f"SELECT {', '.join(items)} FROM t{where}{group}{having}"
