"""The page about SQL, docs/sql.md. Rules are written here; aggregates and functions come from their
tables, so that the page has each of them, with an example that a test runs."""

from __future__ import annotations

from schemas.limits import EXPRESSION_NODES_MAX, GROUPING_SETS_MAX, QUERY_CHARACTERS_MAX
from tests.support.sql_reference.aggregates import aggregates_section
from tests.support.sql_reference.functions import functions_section
from tests.support.sql_reference.refused import refused_section

_HEAD = f"""\
# SQL

<!-- Made by `pytest tests/core/sql/test_sql_reference.py --rewrite`. -->

A job is one `SELECT` over one source. `retally plan SPEC` shows types, state and generated code.
retally refuses everything else with line, column, reason, and the nearest supported form. A query
has at most {QUERY_CHARACTERS_MAX:,} characters and {EXPRESSION_NODES_MAX:,} parts.

A file of Flink SQL becomes job specs with
[`retally from-flink`](flink.md#five-minutes-with-a-flink-sql-file). Statements over the results of
jobs, with joins, are another dialect: [SQL over results](rest.md#sql-over-results).

## A query

```sql
SELECT shop,                                 -- keys, and functions of them
       UPPER(shop) AS title,
       COUNT(*) AS orders,                   -- aggregates, each with a name
       SUM(amount) FILTER (WHERE paid) AS paid,
       COUNT(DISTINCT customer) AS customers,
       SUM(amount) / COUNT(*) AS mean,       -- and expressions over them
       MAX(amount)                           -- without AS: max_amount
FROM orders                                  -- any name: it stands for the source
WHERE amount > 0 AND shop IS NOT NULL
GROUP BY shop                                -- columns, expressions, positions or names
HAVING COUNT(*) > 1
```

- Without `GROUP BY` there is one group. It has no row for an empty input, unless the spec has
  [`empty: row`](job-spec.md#empty).
- `SELECT DISTINCT a, b` is `GROUP BY a, b`.
- A key that is not selected is still part of the state.
- With `HAVING` a group enters the result with `+I` and leaves it with `-D`.
- If an expression over aggregates fails on a group (a division by zero), its result is NULL and
  counted in `misfits`. It is right again once the group's values allow it. `HAVING` reads NULL as
  false.

Derived tables may be nested, without a `GROUP BY` of their own. For a nested aggregate use a second
job that reads the first one's changelog ([formats.md](formats.md#changelog-json-jobs-that-chain),
[what a second fold would take](design/joins.md#nested-aggregates)):

```sql
SELECT kind, SUM(v) AS total
FROM (SELECT LOWER(shop) AS kind, CAST(customer AS INT) AS v FROM orders WHERE paid) AS narrow
GROUP BY kind
```

Grouping sets combine with other keys and with windows. A row counts in every set, at most
{GROUPING_SETS_MAX}. `GROUPING(a)` is 1 in a set without `a`, and
`GROUPING_ID(a, b)` has a bit for each. The one over all keys is part of the key, as the hidden
column `grouping_id` if it is not selected. Equal sets give equal rows, which differ in the hidden
column `group_id`; with `GROUP BY DISTINCT` they count once. Two names of one expression are one
key:

```sql
SELECT shop, customer, GROUPING(customer) AS of_shop, SUM(amount) AS total
FROM orders
GROUP BY ROLLUP(shop, customer)
```

```sql
SELECT shop, paid, COUNT(*) AS n FROM orders GROUP BY GROUPING SETS ((shop, paid), (shop), ())
```

Windows ([job-spec.md](job-spec.md#windows)) are `TUMBLE`, `HOP`, `CUMULATE` and `SESSION`; a query
has at most one:

```sql
SELECT shop, window_start, window_end, SUM(amount) AS total
FROM orders
GROUP BY shop, HOP(at, INTERVAL '1' MINUTE, INTERVAL '5' MINUTE)
```

The first row of each group, also with `n <= 1` or `n < 2`:

```sql
SELECT shop, customer, amount
FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY shop ORDER BY amount DESC) AS n FROM orders)
WHERE n = 1
```

- `QUALIFY ROW_NUMBER() OVER (...) = 1` and `SELECT DISTINCT ON (k) ... ORDER BY ...` are the same.
- If the first row is retracted, the next one takes its place. All values are of one row.
- NULL is the smallest value. The selected values order rows with equal sort keys, in the direction
  of the last sort key; in Flink the order of arrival does.
- Another condition in that WHERE is a HAVING: a group whose first row does not meet it has no row.
- `n <= 2` is refused: its result has several rows for a key, and `TOP_K(amount, 2)` an array.

What other engines write in another way becomes one of these:

| written | is |
| --- | --- |
| `WITH w AS (SELECT ...) SELECT ... FROM w` | a derived table |
| `GROUP BY ALL` | `GROUP BY` of everything selected that is no aggregate |
| `COUNT_IF(c)`, `COUNTIF(c)` | `COUNT(*) FILTER (WHERE c)` |
| `FIRST(x ORDER BY y)`, `LAST(...)` | the same with RESPECT NULLS of FIRST_VALUE, LAST_VALUE |
| `ARRAY_AGG(x ORDER BY y)[1]` | `FIRST_VALUE(x RESPECT NULLS ORDER BY y)` |
| `ANY_VALUE(x ORDER BY y)` | `FIRST_VALUE(x ORDER BY y)` |
| `t - u > INTERVAL '1' HOUR` | `t > u + INTERVAL '1' HOUR`; also BETWEEN |
| `t + n * INTERVAL '1' DAY` | `TIMESTAMPADD(DAY, n, t)` |
| `EXTRACT(EPOCH FROM t)`, `EXTRACT(EPOCH FROM t - u)` | whole seconds, of TIMESTAMPDIFF |
| `x::BIGINT`, `SAFE_CAST(x AS BIGINT)` | `CAST(x AS BIGINT)`, `TRY_CAST(x AS BIGINT)` |
| `x == y` | `x = y` |
| `JSON_AGG(x)`, `JSONB_AGG(x)` | `JSON_ARRAYAGG(x NULL ON NULL)` |
| `JSON_OBJECT_AGG(k, v)`, `JSONB_OBJECT_AGG(k, v)` | `JSON_OBJECTAGG(KEY k VALUE v)` |
| `CAST(x AS VARCHAR(3))`, `CAST(x AS CHAR(3))` | the first 3 characters; CHAR adds spaces |

## Joins

```sql
SELECT c.region, SUM(o.amount) AS revenue
FROM orders AS o LEFT JOIN customers AS c ON o.customer_id = c.id AND c.active
WHERE o.amount > 0 AND NOT EXISTS (SELECT 1 FROM refunds AS r WHERE r.order_id = o.id)
GROUP BY c.region
```

FROM names the [sources](job-spec.md#sources) of the job; a source may be joined with itself. A
query has at most 6 joins, from left to right.

| part | rule |
| --- | --- |
| `JOIN`, `LEFT`, `RIGHT`, `FULL JOIN` | ON has an equality of both sides, or USING a column |
| a comma | takes its equality from WHERE |
| a key | is an expression over one side; both types are the same, so write the CAST |
| NULL, FLOAT, DOUBLE in a key | NULL matches nothing; FLOAT and DOUBLE are refused |
| a condition on one side | is evaluated before the join |
| that on a side that an outer join keeps | its row stays, without a match |
| a condition on both sides | in ON only of `JOIN`, in WHERE of any |
| a derived table | is filtered and evaluated before the join |
| `IN (SELECT ...)`, `EXISTS`, `NOT EXISTS` | among the ANDs of WHERE, related by equalities |
| `NOT IN (SELECT ...)` | is refused: it is never true if the subquery returns a NULL |
| `NATURAL`, `LATERAL`, `FOR SYSTEM_TIME AS OF`, joins in parentheses | not possible |
| `emit: final`, `allowed_lateness` | not possible over a join |

A joined row is of several messages. If an expression of the SELECT, of WHERE or of an ON fails on
it, no message is refused: the row counts for nothing as long as it is there, and the number of such
rows is `failing_rows` of the epoch. An expression over one side that is evaluated before the join
refuses its message, as without a join.

The job keeps the rows of both sides of each join ([tables](tables.md#the-sides-of-a-join)). Views
that join alike share them. A change of one row that many others join changes as many joined rows.
One epoch changes at most 20 million pairs of rows with one key, or reads fewer messages. If a
single message changes more, the job stops and names the key and its rows on both sides.

## Expressions

| | |
| --- | --- |
| arithmetic, text | `+ - * / %`, `\\|\\|`, LIKE |
| comparison | `= <> < <= > >=`, BETWEEN, IN, IS [NOT] NULL, IS [NOT] DISTINCT FROM |
| logic | AND, OR, NOT, IS [NOT] TRUE, FALSE or UNKNOWN |
| choice | CASE, IF, NULLIF, and COALESCE, GREATEST, LEAST of the functions |
| types | CAST, TRY_CAST |
| literals | `DATE '2026-01-31'`, `TIMESTAMP '2026-01-31 12:00:00'`, `TIME '08:30:00'`, `X'00FF'` |
| with an offset | `TIMESTAMP_LTZ '2026-01-31 12:00:00+01:00'` |
| time | `t + INTERVAL '1' DAY`, `FLOOR(t TO HOUR)`, `EXTRACT(HOUR FROM t)` |

A text literal beside a DATE, TIME or TIMESTAMP is such a literal: `at > '2026-01-31'`. NULL takes
its type from its place.

If an expression fails on a row (a cast, a division by zero, an overflow, `SQRT(-1)`, a day beyond
the year 9999), the row's message goes to quarantine with the reason. Formats of time consist of
`yyyy MM dd HH mm ss S`. Formats, paths, lengths and patterns must be literals.

"""


def sql_page() -> str:
    """The whole page."""
    return _HEAD + "\n".join((aggregates_section(), functions_section(), refused_section()))
