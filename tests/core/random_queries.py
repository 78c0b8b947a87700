"""Random expressions and queries inside the grammar, as SQL text, by type."""

from __future__ import annotations

from random import Random

from schemas.types import (
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
            f"CAST({random.choice(_MOMENTS)} AS STRING)",
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
            "at <= TIMESTAMP '2024-02-29 12:00:00.5'",
            "x = X'00FF'",
        )
    )


def expression(random: Random, depth: int = 3) -> str:
    return random.choice((number, text, truth))(random, depth)


def query(random: Random) -> str:
    """A query whose GROUP BY, aggregates, FILTERs and WHERE are random."""
    keys = [expression(random, 1) for _ in range(random.randint(0, 2))]
    keys = [f"COALESCE({key}, NULL)" if key.lstrip("-").isdigit() else key for key in keys]
    items = [f"{key} AS k{index}" for index, key in enumerate(keys) if random.random() < 0.8]
    for index in range(random.randint(1, 3)):
        function = random.choice(("COUNT", "SUM", "AVG", "MIN", "MAX"))
        argument = number(random, 2)
        chosen = f" FILTER (WHERE {truth(random, 1)})" if random.random() < 0.3 else ""
        named = f" AS a{index}" if random.random() < 0.5 else ""
        items.append(f"{function}({argument}){chosen}{named}")
    where = f" WHERE {truth(random, 2)}" if random.random() < 0.5 else ""
    group = f" GROUP BY {', '.join(keys)}" if keys else ""
    return f"SELECT {', '.join(items)} FROM t{where}{group}"
