"""The page about SQL: docs/sql.md. What can be said by rule is here; aggregates and functions come
from their tables, so that the page has each of them, with an example that a test runs."""

from __future__ import annotations

from schemas.limits import EXPRESSION_NODES_MAX, GROUPING_SETS_MAX, QUERY_CHARACTERS_MAX
from tests.support.sql_reference.aggregates import aggregates_section
from tests.support.sql_reference.functions import functions_section

_HEAD = f"""\
# SQL

<!-- Made by `pytest tests/core/sql/test_sql_reference.py --rewrite`. -->

A job is one `SELECT` over one source. `retally plan SPEC` shows what becomes of it: types, state,
generated code. What is not taken is refused with its line and column, the reason, and the nearest
thing that is. A query has at most {QUERY_CHARACTERS_MAX:,} characters, and
{EXPRESSION_NODES_MAX:,} parts.

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

- Without `GROUP BY` there is one group. `SELECT DISTINCT a, b` is `GROUP BY a, b`.
- A key that is not selected is part of the state all the same.
- With `HAVING` a group enters the result with `+I` when it passes, and leaves it with `-D` when it
  does not.
- Expressions over aggregates are evaluated where groups are folded. One that fails on a group (a
  division by zero) is NULL, counted as `misfits`, and right again when the group's values are;
  `HAVING` takes NULL for no.

Derived tables, nested too, without a `GROUP BY` of their own; a nested aggregate is a second job
that reads the first one's changelog ([formats.md](formats.md)):

```sql
SELECT kind, SUM(v) AS total
FROM (SELECT LOWER(shop) AS kind, CAST(customer AS INT) AS v FROM orders WHERE paid) AS narrow
GROUP BY kind
```

Grouping sets, beside other keys and windows too. A row counts in every set, at most
{GROUPING_SETS_MAX} of them; equal sets count once. `GROUPING(a)` is 1 where the set is without `a`,
`GROUPING_ID(a, b)` has a bit for each; the one over all keys is part of the key, as the hidden
column `grouping_id` if it is not selected:

```sql
SELECT shop, customer, GROUPING(customer) AS of_shop, SUM(amount) AS total
FROM orders
GROUP BY ROLLUP(shop, customer)
```

```sql
SELECT shop, paid, COUNT(*) AS n FROM orders GROUP BY GROUPING SETS ((shop, paid), (shop), ())
```

Windows ([job-spec.md](job-spec.md#windows)) are `TUMBLE`, `HOP` and `SESSION`, one in a query:

```sql
SELECT shop, window_start, window_end, SUM(amount) AS total
FROM orders
GROUP BY shop, HOP(at, INTERVAL '1' MINUTE, INTERVAL '5' MINUTE)
```

Not possible, and why: joins (a job reads one stream), `ORDER BY` and `LIMIT` of the result (it
changes all the time: order where you read it, or see TOP_K), whatever gives another value each time
(NOW, RAND, UUID), whatever may differ between two machines (SIN, COS) or take for ever on one row
(regular expressions).

## Expressions

| | |
| --- | --- |
| arithmetic, text | `+ - * / %`, `\\|\\|`, LIKE |
| comparison | `= <> < <= > >=`, BETWEEN, IN, IS [NOT] NULL, IS [NOT] DISTINCT FROM |
| logic | AND, OR, NOT, IS [NOT] TRUE, FALSE or UNKNOWN |
| choice | CASE, IF, NULLIF, and COALESCE, GREATEST, LEAST of the functions |
| types | CAST, TRY_CAST, `DATE '2026-01-31'`, `TIMESTAMP '2026-01-31 12:00:00'`, `X'00FF'` |
| time | `t + INTERVAL '1' DAY`, `FLOOR(t TO HOUR)`, `EXTRACT(HOUR FROM t)` |

A row on which one fails (a cast, a division by zero, an overflow, `SQRT(-1)`, a day beyond the year
9999) sends its message to quarantine, with the reason. Formats of time are made of
`yyyy MM dd HH mm ss S`; formats, paths, lengths and patterns are written out.

"""


def sql_page() -> str:
    """The whole page."""
    return _HEAD + aggregates_section() + "\n" + functions_section()
