"""Expressions in Python, over results and over rows, against the same expressions in Spark.

Every value that Spark gives a row Python must give too, and fail where Spark fails the row.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from jobs.core.evaluate.expressions import evaluator
from jobs.core.evaluate.texts import moment_printer
from jobs.core.plan.tree import Call, Column, Expression, KeyValue, Plan
from jobs.core.plan.walk import replace_parts, walk
from jobs.core.rows.consolidate import WeightedRows, plain_indexes
from jobs.core.rows.projection import RowFailed, compile_row
from jobs.core.sql.printer import expression_sql
from jobs.core.sql.select import QueryError, parse_query
from jobs.core.values.exact_numbers import to_float32
from jobs.core.values.float_values import NAN
from jobs.core.values.rounding import EvaluationError
from jobs.edge.rows.evaluated_rows import evaluate_rows
from jobs.edge.rows.range_rows import RangeRows
from jobs.edge.spark.column_types import spark_type
from schemas.types.arrow_values import from_arrow, to_arrow
from schemas.types.sql_types import SqlType
from tests.support.histories import random_queries
from tests.support.histories.plan_sql import plan_sql
from tests.support.sampling import quick
from tests.support.spark_columns.expressions import build, project

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.costly("Spark evaluates every function beside ours")

COLUMNS = random_queries.COLUMNS
NAMES = list(COLUMNS)
SOME, AT_ONCE = 90, 30
LAST_US, FIRST_US = 253_402_300_799_999_999, -62_135_596_800_000_000
NINES = 10**38 - 1

ROWS: list[dict[str, Any]] = [
    {},
    {"s": "2024-02-29 23:30:00.5-01:30"},
    {"s": "12", "r": "a%_", "t": 127, "i": 2**31 - 1, "l": 2**63 - 1, "f": to_float32(3e38),
     "d": 1e308, "m": 9_999_999_999, "w": NINES, "b": True, "day": 2_932_896, "at": LAST_US,
     "seen": LAST_US, "x": b"\xff"},
    {"s": "", "r": "\\", "t": -128, "i": -(2**31), "l": -(2**63), "f": to_float32(-3e38),
     "d": math.nan, "m": -9_999_999_999, "w": -NINES, "b": False, "day": -719_162, "at": FIRST_US,
     "seen": -2_208_988_800_000_000, "x": b""},
    {"s": "a b;c😀", "r": "0.0", "t": 0, "i": 0, "l": 0, "f": 0.0, "d": math.inf, "m": 0, "w": 0,
     "day": 0, "at": 0, "seen": 0, "x": b"\x00\xff"},
    {"s": " it's ", "r": ";", "t": 7, "i": -13, "l": 2**53 + 1, "f": 0.5, "d": 2.675, "m": 105,
     "w": 12_345, "b": True, "day": 19_782, "at": 1_709_251_199_999_999,
     "seen": 1_709_164_800_000_001, "x": "é".encode()},
    {"s": "%a_", "r": "%a_", "t": -1, "i": 3, "l": -25, "f": -1.5, "d": -0.125, "m": -250,
     "w": -1_999, "b": False, "day": -1, "at": -1, "seen": 1_725_148_800_000_000, "x": b"a"},
    {"f": to_float32(0.1)},
    {"f": to_float32(-3.14159)},
]  # fmt: skip


def over_keys(expression: Expression) -> Expression:
    """The same over a group's key, whose values are the row's."""
    return replace_parts(
        expression,
        lambda part: (
            KeyValue(NAMES.index(part.name), part.type) if isinstance(part, Column) else None
        ),
    )


def of_row(expression: Expression, row: dict[str, Any]) -> Any:
    values = [row.get(name) for name in NAMES]
    try:
        return evaluator(over_keys(expression), len(NAMES))(values)
    except EvaluationError:
        return EvaluationError


def table() -> pa.Table:
    columns = [to_arrow([row.get(name) for row in ROWS], kind) for name, kind in COLUMNS.items()]
    return pa.Table.from_arrays([pa.array(range(len(ROWS))), *columns], ["number", *NAMES])


@pytest.fixture(scope="module")
def known(spark: SparkSession) -> DataFrame:
    from pyspark.sql import types as T

    schema = T.StructType([T.StructField("number", T.LongType())])
    for name, kind in COLUMNS.items():
        schema.add(name, spark_type(kind))
    return spark.createDataFrame(table(), schema).persist()


def in_spark(known: DataFrame, expressions: Sequence[Expression]) -> list[list[Any]]:
    """Of each expression its values, row by row."""
    from pyspark.sql import functions as F

    columns = [F.col("number")]
    for index, expression in enumerate(expressions):
        made = build(expression)
        columns.append(made.value.try_cast(spark_type(expression.type)).alias(f"v{index}"))
        failure = F.lit(None).cast("string") if made.failure is None else made.failure
        columns.append(failure.isNotNull().alias(f"f{index}"))
    found = known.select(*columns).orderBy("number").toArrow()
    results = []
    for index, expression in enumerate(expressions):
        values = from_arrow(found[f"v{index}"], expression.type)
        failed = found[f"f{index}"].to_pylist()
        results.append(
            [EvaluationError if bad else v for v, bad in zip(values, failed, strict=True)]
        )
    return results


def read(text: str) -> Expression:
    return parse_query(f"SELECT MAX({text}) AS x FROM t", COLUMNS).arguments[0].expression


def possible(random: Random, depth: int) -> Expression | None:
    try:
        expression = read(random_queries.expression(random, depth))
    except QueryError:
        return None
    return expression


def agree(known: DataFrame, expressions: Sequence[Expression]) -> None:
    wrong = []
    for start in range(0, len(expressions), AT_ONCE):
        some = expressions[start : start + AT_ONCE]
        for expression, values in zip(some, in_spark(known, some), strict=True):
            for row, value in zip(ROWS, values, strict=True):
                mine = of_row(expression, row)
                if repr(mine) != repr(value):
                    names = {e.name for e in walk(expression) if isinstance(e, Column)}
                    inputs = {name: row.get(name) for name in sorted(names)}
                    text = expression_sql(expression)
                    wrong.append(f"{text} {inputs}: Spark {value!r}, Python {mine!r}")
    assert not wrong, "\n".join(["", *wrong])


@pytest.mark.parametrize("depth", quick([1, 2, 3], [2]))
def test_random_expressions_are_the_same_in_spark_and_in_python(
    known: DataFrame, depth: int
) -> None:
    random = Random(depth)
    made: list[Expression] = []
    while len(made) < SOME // depth:
        expression = possible(random, depth)
        if expression is not None and any(isinstance(e, Column) for e in walk(expression)):
            made.append(expression)
    functions = {each.function for e in made for each in walk(e) if isinstance(each, Call)}
    assert len(functions) > 5
    agree(known, made)


def test_like_is_the_same(known: DataFrame) -> None:
    random = Random(7)
    patterns = {
        "".join(random.choices("%_ab; 😀\\", k=random.randint(0, 6))).replace("'", "")
        for _ in range(60)
    }
    texts = ("s", "r", "s || r", "r || s || r")
    agree(known, [read(f"{text} LIKE '{pattern}'") for text in texts for pattern in patterns])


def random_plans(seed: int, count: int) -> Iterator[Plan]:
    random = Random(seed)
    while count:
        try:
            plan = parse_query(random_queries.query(random), COLUMNS)
        except QueryError:
            continue
        if plan.used and not plain_indexes(plan):
            count -= 1
            yield plan


def project_in_spark(known: DataFrame, plan: Plan) -> tuple[list[Any], dict[int, set[str]]]:
    """The group and the arguments of the rows that WHERE leaves, and why the others fail.

    Copies of a row for several grouping sets may fail for several reasons."""
    found = project(known, plan, ["number"]).toArrow()
    numbers = found["number"].to_pylist()
    columns = [
        from_arrow(found[f"{letter}{index}"], named.type)
        for letter, every in (("g", plan.group), ("a", plan.arguments))
        for index, named in enumerate(every)
    ]
    reasons: list[str | None] = [None] * len(numbers)
    if "failure" in found.column_names:
        reasons = found["failure"].to_pylist()
    rows = list(zip(*columns, strict=True)) or [()] * len(numbers)
    failures: dict[int, set[str]] = {}
    for number, why in zip(numbers, reasons, strict=True):
        if why is not None:
            failures.setdefault(number, set()).add(NUMBER.sub("N", why))
    return sorted(
        ((n, row) for n, row in zip(numbers, rows, strict=True) if n not in failures), key=repr
    ), failures


def project_in_arrays(plan: Plan) -> tuple[list[Any], dict[int, str]]:
    every = table()
    columns = [every[column.name].combine_chunks() for column in plan.used]
    numbers = np.arange(len(ROWS))
    weighted = WeightedRows(numbers, numbers, np.ones(len(ROWS), np.int64))
    found = evaluate_rows(plan, RangeRows(columns, weighted.weights), weighted)
    kinds = [named.type for named in (*plan.group, *plan.arguments)]
    values = [from_arrow(a, kind) for a, kind in zip(found.rows.columns, kinds, strict=True)]
    positions, failures = found.weighted.positions.tolist(), dict(found.failures)
    rows = list(zip(*values, strict=True)) or [()] * len(positions)
    return sorted(
        ((n, row) for n, row in zip(positions, rows, strict=True) if n not in failures), key=repr
    ), failures


@pytest.mark.parametrize("seed", quick([1, 2, 3], [1]))
def test_random_queries_have_the_same_rows_and_refuse_the_same(known: DataFrame, seed: int) -> None:
    plans = list(random_plans(seed, 25))
    compare_projections(known, plans, refused_least=10)


WINDOWS = (
    ("at", "TUMBLE({}, INTERVAL '1' HOUR)"),
    ("seen", "HOP({}, INTERVAL '5' MINUTE, INTERVAL '15' MINUTE)"),
    ("l", "HOP({}, INTERVAL '1' SECOND, INTERVAL '4' SECOND)"),
    ("l", "TUMBLE({}, INTERVAL '2' DAY)"),
    ("l", "HOP({}, INTERVAL '2' SECOND, INTERVAL '4' SECOND, INTERVAL '-0.3' SECOND)"),
)


def test_rows_are_in_the_same_windows_and_grouping_sets(known: DataFrame) -> None:
    sets = ("s, i", "ROLLUP(s, i)", "GROUPING SETS ((s), (i), ())")
    wheres = ("", " WHERE i > 0", " WHERE 10 / i > 0")
    texts = [
        f"SELECT window_end, s, i, COUNT(*) AS n, MAX(l % i) AS x FROM t{where} "
        f"GROUP BY {of.format(time)}, s, i"
        for time, of in WINDOWS
        for where in wheres
    ]
    texts += [
        f"SELECT s, i, GROUPING(s, i) AS g, GROUPING(i) AS h, COUNT(*) AS n FROM t GROUP BY {keys}"
        for keys in sets[1:]
    ]
    plans = [parse_query(text, COLUMNS) for text in texts]
    compare_projections(known, plans, refused_least=10)


def compare_projections(known: DataFrame, plans: Sequence[Plan], refused_least: int) -> None:
    wrong, refused, left = [], 0, 0
    for plan in plans:
        rows, failures = project_in_spark(known, plan)
        mine, mine_failing = project_in_arrays(plan)
        refused, left = refused + len(failures), left + len(rows)
        if repr(mine) != repr(rows):
            wrong.append(f"{plan_sql(plan)}: Spark {rows}, arrays {mine}")
        same = failures.keys() == mine_failing.keys()
        if not same or any(
            NUMBER.sub("N", why) not in failures[n] for n, why in mine_failing.items()
        ):
            wrong.append(f"{plan_sql(plan)}: Spark {failures}, arrays {mine_failing}")
    assert refused >= refused_least
    assert left > 20
    assert not wrong, "\n".join(["", *wrong])


NUMBER = re.compile(r"'[^']*'(?= does not fit)")  # Spark prints a FLOAT in another way
NUMBERS = ("t", "i", "l", "f", "d", "m", "w", "2.50", "-3", "7", "1.5e2", "3000000000")


@pytest.mark.slow
def test_every_pair_of_numbers_is_calculated_and_cast_the_same(known: DataFrame) -> None:
    targets = ("TINYINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(12, 3)", "DECIMAL(38, 10)")
    texts = [f"{a} {op} {b}" for a in NUMBERS for op in "+-*/%" for b in NUMBERS[:8:2]]
    texts += [f"CAST({a} AS {target})" for a in NUMBERS[:7] for target in targets]
    texts += [f"ROUND({a}, {digits})" for a in NUMBERS[:7] for digits in (-2, -1, 0, 1, 2, 5)]
    texts += [f"{name}({a})" for a in NUMBERS[:7] for name in ("ABS", "SIGN", "FLOOR", "CEIL", "-")]
    agree(known, [each for each in map(read, texts) if any(map(_reads, walk(each)))])


def _reads(expression: Expression) -> bool:
    return isinstance(expression, Column)


@pytest.mark.slow
def test_every_unit_of_time_is_the_same(known: DataFrame) -> None:
    units = ("SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR")
    texts = [
        f"TIMESTAMPDIFF({u}, {a}, {b})"
        for u in units
        for a, b in (("at", "seen"), ("seen", "at"), ("day", "at"), ("day", "seen"))
    ]
    texts += [f"TIMESTAMPADD({u}, {n}, at)" for u in units for n in ("t", "i")]
    texts += [f"TIMESTAMPADD({u}, {n}, day)" for u in units[3:] for n in ("t", "i")]
    texts += [f"DATE_TRUNC('{u}', at)" for u in units]
    parts = ("YEAR", "QUARTER", "MONTH", "WEEK", "DOY", "DAY", "DOW")
    texts += [f"EXTRACT({part} FROM {a})" for part in parts for a in ("day", "at", "seen")]
    texts += [f"{part}({a})" for part in ("HOUR", "MINUTE", "SECOND") for a in ("at", "seen")]
    kinds = {"at": "TIMESTAMP", "seen": "TIMESTAMP_LTZ"}
    texts += [f"CAST({a} AS {kind}({p}))" for a, kind in kinds.items() for p in (0, 3, 4, 6)]
    agree(known, list(map(read, texts)))


# --- texts, logarithms, formats, JSON ------------------------------------------------------------


def compare(spark: SparkSession, sql: Sequence[str], texts: Sequence[Any], kind: str) -> None:
    """Compare expressions over a column `x` of this type in Spark and in Python."""
    from pyspark.sql import functions as F

    column = SqlType.parse(kind)
    made = [
        parse_query(f"SELECT MAX({text}) AS x FROM t", {"x": column}).arguments[0].expression
        for text in sql
    ]
    columns = [pa.array(range(len(texts))), to_arrow(texts, column)]
    table = pa.Table.from_arrays(columns, ["number", "x"])
    frame = spark.createDataFrame(table)
    selected = [F.col("number")]
    for index, expression in enumerate(made):
        built = build(expression)
        selected.append(built.value.try_cast(spark_type(expression.type)).alias(f"v{index}"))
        failure = F.lit(None).cast("string") if built.failure is None else built.failure
        selected.append(failure.alias(f"f{index}"))
    found = frame.select(*selected).orderBy("number").toArrow()
    wrong = []
    for index, expression in enumerate(made):
        evaluate = compile_row(expression, (Column("x", column),)).evaluate
        values = from_arrow(found[f"v{index}"], expression.type)
        for text, value, why in zip(texts, values, found[f"f{index}"].to_pylist(), strict=True):
            try:
                mine: Any = evaluate((text,))
            except RowFailed as failed:
                mine = str(failed)
            wanted = value if why is None else why
            if repr(mine) != repr(wanted) and not _same_number(mine, wanted, kind):
                wrong.append(f"{expression_sql(expression)} {text!r}: Spark {wanted!r}, {mine!r}")
    assert not wrong, "\n".join(["", f"{len(wrong)} differ", *wrong[:60]])


def _same_number(mine: Any, other: Any, kind: str) -> bool:
    """Java 17 prints some doubles with more digits than Java 19 and later."""
    if not isinstance(mine, str) or not isinstance(other, str) or "." not in mine:
        return False
    try:
        one, two = float(mine), float(other)
        same = to_float32(one) == to_float32(two) if kind == "FLOAT" else one == two
        return same and len(mine) <= len(other)
    except ValueError:
        return False


@pytest.mark.slow
def test_upper_and_lower_case_are_the_same_for_every_character(spark: SparkSession) -> None:
    every = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    texts = ["".join(every[at : at + 16]) for at in range(0, len(every), 16)]
    texts += ["straße", "ΓΣ", "ΓΣ.", "Γ Σ", "ΣΓ", "Σ", "ΓΣΓ", "ΓΣ\u0301", "İstanbul", "ŉ"]
    compare(spark, ["UPPER(x)", "LOWER(x)"], texts, "STRING")


def random_doubles(random: Random, count: int) -> list[float]:
    """Return doubles of every size, around 1, and whole ones."""
    some = [math.ldexp(random.random() + 0.5, random.randint(-1070, 1023)) for _ in range(count)]
    some += [random.uniform(-3, 3) for _ in range(count)]
    some += [random.uniform(-750, 720) for _ in range(count)]
    some += [1 + random.uniform(-1, 1) * 2.0 ** -random.randint(1, 52) for _ in range(count)]
    some += [float(random.randint(-1000, 1000)) for _ in range(count)]
    some += [math.inf, -math.inf, NAN, 0.0, 5e-324, 1.7976931348623157e308, 1.0, -1.0, 0.5, 2.0]
    return some


@pytest.mark.parametrize("count", quick([100, 1_500], [100]))
def test_logarithms_and_powers_have_the_same_last_digit(count: int, spark: SparkSession) -> None:
    sql = ["EXP(x)", "LN(x)", "LOG10(x)", "LOG2(x)", "LOG(x, 7)", "LOG(10, x)", "POWER(x, 3)"]
    sql += ["POWER(x, 0.5)", "POWER(x, -1.7)", "POWER(2, x)", "POWER(1.0001, x)", "POWER(x, x)"]
    sql += ["POWER(-3, x)", "POWER(0, x)", "POWER(x, 0)", "POWER(x, 5000000000)"]
    compare(spark, sql, random_doubles(Random(1), count), "DOUBLE")


@pytest.mark.parametrize("count", quick([100, 1_000], [100]))
def test_numbers_have_the_same_text(count: int, spark: SparkSession) -> None:
    doubles = random_doubles(Random(2), count)
    doubles += [10.0**n for n in range(-320, 309)] + [n / 100 for n in range(-500, 500)]
    compare(spark, ["CAST(x AS STRING)"], doubles, "DOUBLE")
    singles = [to_float32(each) for each in doubles]
    compare(spark, ["CAST(x AS STRING)"], singles, "FLOAT")


def random_text(random: Random) -> str:
    """Return a text that may be a number, a moment, or a word."""
    digits = "".join(random.choices("0123456789", k=random.randint(1, 22)))
    point = random.randint(0, len(digits))
    number = random.choice([digits, f"{digits[:point]}.{digits[point:]}"])
    number = random.choice(["", "-", "+"]) + number
    number += random.choice(["", "", f"e{random.randint(-40, 40)}", "E+3", "d", "f", "L"])
    stamp = f"{random.choice(['2024', '0001', '9999', '0000', '24', '12024'])}-"
    stamp += f"{random.randint(0, 13):0{random.choice([1, 2])}}-"
    stamp += f"{random.randint(0, 32):0{random.choice([1, 2])}}"
    stamp += random.choice(["", " ", "T", "  "])
    stamp += random.choice(["", "1:2", "01:02:03", "23:59:59.", "24:00:00", "12:30:60", "7", "x"])
    stamp += random.choice(["", f".{random.randint(0, 10**9)}", "Z", "+01:00"])
    words = ["true", "T", "yes", "y", "1", "0", "no", "F", "maybe", "NaN", "nan", "Infinity"]
    words += ["-inf", "+Infinity", "0x1p3", "0x1.8P-2", "1_000", "", ".", "-", "+", "1e", "2024"]
    words += ["2024-5", "2024-05-", "1,5", "0.0e99", "1e400", "1e-400", "now", "epoch"]
    text = random.choice([number, number, stamp, stamp, random.choice(words)])
    blanks = random.choice(["", "", "", " ", "\t", "  ", "\u00a0", "\x01"])
    return random.choice([text, blanks + text, text + blanks, blanks + text + blanks])


@pytest.mark.parametrize("count", quick([500, 6_000], [500]))
def test_texts_are_read_as_the_same_values(count: int, spark: SparkSession) -> None:
    random = Random(3)
    texts = [random_text(random) for _ in range(count)]
    kinds = ["TINYINT", "INT", "BIGINT", "DECIMAL(10, 2)", "DECIMAL(38, 10)", "FLOAT", "DOUBLE"]
    kinds += ["BOOLEAN", "DATE", "TIMESTAMP(0)", "TIMESTAMP(3)", "TIMESTAMP(6)"]
    sql = [f"CAST(x AS {kind})" for kind in (*kinds, "TIMESTAMP_LTZ(3)", "BINARY")]
    compare(spark, [*sql, *(f"TRY_CAST(x AS {kind})" for kind in kinds)], texts, "STRING")


FORMATS = [
    *("yyyy-MM-dd HH:mm:ss.SSS", "yyyyMMdd", "dd.MM.yyyy", "HH:mm", "yyyy", "ss.SSSSSS S"),
    *("yyyy-MM-dd'T'HH:mm:ss", "MM/dd", "yyyy MM MM", "SSSss", "HH:HH"),
]


@pytest.mark.parametrize("count", quick([50, 500], [50]))
def test_moments_are_printed_and_read_in_the_same_formats(count: int, spark: SparkSession) -> None:
    random = Random(4)
    moments = [random.randint(FIRST_US, LAST_US) for _ in range(count)]
    moments += [FIRST_US, LAST_US, 0, -1]
    literal = [each.replace("'", "''") for each in FORMATS]
    printed = [f"DATE_FORMAT(x, '{each}')" for each in literal]
    compare(spark, printed, moments, "TIMESTAMP(6)")
    compare(spark, printed, moments, "TIMESTAMP_LTZ(6)")
    compare(spark, printed, [each // 86_400_000_000 for each in moments], "DATE")
    texts = [
        moment_printer(each)(random.choice(moments)) for each in FORMATS for _ in range(count // 8)
    ]
    texts += [_damage(random, text) for text in texts] + ["2024-02-30", "20240229", "20230229", ""]
    read = [f"{name}(x, '{each}')" for name in ("TO_DATE", "TO_TIMESTAMP") for each in literal]
    compare(spark, read, texts, "STRING")
    numbers = [random.randint(-(10**15), 10**15) for _ in range(count)] + [2**63 - 1, -(2**63), 0]
    sql = ["TO_TIMESTAMP_LTZ(x, 0)", "TO_TIMESTAMP_LTZ(x, 3)"]
    compare(spark, sql, numbers, "BIGINT")


def _damage(random: Random, text: str) -> str:
    at = random.randint(0, len(text))
    return text[:at] + random.choice("019 :-.tTx") + text[at + random.randint(0, 1) :]


def random_json(random: Random, depth: int) -> str:
    scalars = ["1", "-0", "0.50", "1e3", "1E-7", "12345678901234567890", "-1.0", "true", "null"]
    scalars += ["false", '"x"', '"\\u00e9\\n"', '"\\u001f\\/"', '"é😀"', '""', "1e400", "0.10e1"]
    scalars += ["1" + "0" * 39, "0." + "1" * 40, "123456789.000", '"\\ud83d\\ude00"', '"\\ud800"']
    scalars += ["01", "NaN", "+1", ".5", "1.", "'a'", "tru", '"a\tb"']
    if depth == 0 or random.random() < 0.2:
        return random.choice(scalars)
    inner = [random_json(random, depth - 1) for _ in range(random.randint(0, 3))]
    if random.random() < 0.4:
        return f"[{random.choice([',', ' , '])[:9].join(inner)}]"
    keys = random.sample(["a", "b", "a b", "é", "\uffff", "😀", "Z"], len(inner))
    if len(keys) > 1 and random.random() < 0.05:
        keys[1] = keys[0]
    return "{" + ",".join(f'"{key}":{value}' for key, value in zip(keys, inner, strict=True)) + "}"


@pytest.mark.parametrize("count", quick([400, 4_000], [400]))
def test_json_has_the_same_parts(count: int, spark: SparkSession) -> None:
    random = Random(5)
    texts = [random_json(random, random.randint(0, 4)) for _ in range(count)]
    ends = ["", "", "", " ", "\n", "x", "}", ",1", "1", " 2", ";"]
    texts = [random.choice(["", "", " ", "\ufeff"]) + t + random.choice(ends) for t in texts]
    paths = ("$", "$.a", "$.a.b", "$[0]", "$.a[1]", "$[''a b'']", "$.b[0].a", "$[1][0]")
    names = ("JSON_VALUE", "JSON_QUERY", "JSON_EXISTS")
    sql = [f"{name}(x, '{path}')" for name in names for path in paths]
    compare(spark, sql, [*texts, "", " ", "[" * 150 + "]" * 150], "STRING")
