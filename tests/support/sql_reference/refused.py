"""What other engines have and retally refuses, in docs/sql.md, with the reason of each.

Functions come from the product's tables. A test parses each query, and each call.
"""

from __future__ import annotations

from collections import defaultdict

from jobs.core.sql.refused_names import AGGREGATES, FUNCTIONS, Refused
from jobs.core.sql.row_expressions import NOT_DETERMINISTIC

ONE_SCAN = "each row is read once: let a second job read the first one's changelog"
RESULT = "the result changes: order it where you read it, or use TOP_K"
# What is refused, a query with it, and the reason with a substitute.
CLAUSES = [
    ("`ORDER BY`, `LIMIT` of the result", "SELECT COUNT(*) FROM t LIMIT 1", RESULT),
    ("OVER, QUALIFY", "SELECT SUM(cnt) OVER () FROM t", "a stream of changes has no order of rows"),
    ("GROUP BY or DISTINCT in FROM", "SELECT MAX(n) FROM (SELECT COUNT(*) AS n FROM t)", ONE_SCAN),
    (
        "UNION ALL in FROM",
        "SELECT MAX(x) FROM (SELECT cnt AS x FROM t UNION ALL SELECT day FROM t)",
        "a row of the source is one row of the query: name topics of one format in "
        "`source.topics`, or write an aggregate with FILTER for each part",
    ),
    (
        "UNION, INTERSECT, EXCEPT",
        "SELECT MAX(cnt) FROM t UNION ALL SELECT 1",
        "a job is one SELECT: publish two streams to one topic, or use two jobs",
    ),
    (
        "WITH RECURSIVE",
        "WITH RECURSIVE w AS (SELECT 1 FROM w) SELECT MAX(cnt) FROM w",
        "each row is read once",
    ),
    (
        "scalar subqueries",
        "SELECT COUNT(*) FROM t WHERE cnt > (SELECT 1)",
        "only IN and EXISTS are joins: join the other source",
    ),
    (
        "values of ROW, MAP, ARRAY",
        "SELECT ROW(name, cnt), COUNT(*) FROM t GROUP BY 1",
        "a value has no parts; COUNT(DISTINCT ROW(a, b)) and ARRAY_AGG(...)[1] are exceptions",
    ),
    (
        "values of INTERVAL",
        "SELECT MAX(INTERVAL '1' DAY) FROM t",
        "there is no such type: TIMESTAMPDIFF, or t - u > INTERVAL '1' HOUR",
    ),
    (
        "INTERVAL '1:30' HOUR TO MINUTE, sums of INTERVALs",
        "SELECT MAX(TIMESTAMP '2026-01-31 00:00:00' + INTERVAL '01:30' HOUR TO MINUTE) FROM t",
        "an INTERVAL has one unit: t + INTERVAL '1' HOUR + INTERVAL '30' MINUTE",
    ),
    (
        "DATE - DATE, DATE + 1",
        "SELECT MAX(DATE '2026-01-31' - DATE '2026-01-01') FROM t",
        "engines disagree about the type: TIMESTAMPDIFF(DAY, u, t), d + INTERVAL '1' DAY",
    ),
    (
        "functions, CAST and arithmetic of TIME",
        "SELECT MAX(HOUR(TIME '08:30:00')) FROM t",
        "it can be compared, grouped by and counted: declare a STRING, or use a TIMESTAMP",
    ),
    (
        "ARRAY_AGG(...)[2], the last item",
        "SELECT ARRAY_AGG(cnt ORDER BY day)[2] FROM t",
        "only the first item is an aggregate: TOP_K, ARG_MAX(x, y, k), or LAST_VALUE",
    ),
    (
        "CAST to VARBINARY(n), to an unsigned type",
        "SELECT MAX(CAST(cnt AS INT UNSIGNED)) FROM t",
        "there are no such types; unsigned names are allowed in `columns`",
    ),
    (
        "text beside a number",
        "SELECT COUNT(*) FROM t WHERE cnt > '5'",
        "the cast could fail on a row: write the CAST",
    ),
    (
        "FIRST, LAST without ORDER BY",
        "SELECT LAST(cnt) FROM t",
        "partitions have no common order, and a retraction names a value, not its row",
    ),
]


def refused_section() -> str:
    lines = ["## What others have", ""]
    lines += [
        "Five engines' own test suites [were run here](lab/peers.md): no result is wrong.",
        "",
    ]
    lines += ["| refused | because | try |", "| --- | --- | --- |"]
    lines += [f"| {what} | {why} | |" for what, _, why in CLAUSES]
    never = ", ".join(sorted(each for each in NOT_DETERMINISTIC if "_" not in each))
    lines.append(f"| {never}, ... | a retraction would have another value than its row | |")
    names: dict[Refused, list[str]] = defaultdict(list)
    for name, refused in {**AGGREGATES, **FUNCTIONS}.items():
        names[refused].append(name)
    for refused, these in names.items():
        instead = f"`{refused.instead}`" if refused.instead else ""
        lines.append(f"| {', '.join(these)} | {refused.reason} | {instead} |")
    return "\n".join(lines) + "\n"
