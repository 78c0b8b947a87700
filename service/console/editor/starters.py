"""Specs to start from, for the menu of the editor."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

_NAME = "name: "


@dataclass(frozen=True, slots=True)
class Starter:
    name: str  # in addresses
    label: str
    text: str


STARTERS = (
    Starter(
        "totals",
        "Totals by group",
        """\
name: items
source:
  topic: shop.product
  format: canal-json
columns: {id: BIGINT, name: STRING, cnt: INT}
query: |
  SELECT name, SUM(cnt), MAX(cnt) AS top, COUNT(*) AS n
  FROM product
  GROUP BY name
sink: {topic: items-changes}
""",
    ),
    Starter(
        "windows",
        "Windows of an hour",
        """\
name: hourly-orders
source:
  topic: shop.orders
  format: canal-json
columns: {id: BIGINT, city: STRING, amount: 'DECIMAL(10, 2)', ordered_at: TIMESTAMP(3)}
watermark: {time: {column: ordered_at}, delay: 5s, idle_after: 30s}
query: |
  SELECT TUMBLE_START(ordered_at, INTERVAL '1' HOUR) AS hour, city,
         SUM(amount) AS total, COUNT(*) AS n
  FROM orders
  GROUP BY TUMBLE(ordered_at, INTERVAL '1' HOUR), city
""",
    ),
    Starter(
        "debezium",
        "A Debezium source, the latest row of each key",
        """\
name: stock
source:
  topic: shop.inventory.stock
  format: debezium-json
columns: {id: BIGINT, warehouse: STRING, quantity: INT}
primary_key: [id]
dedupe: pk
query: |
  SELECT warehouse, SUM(quantity) AS quantity, MIN(quantity) AS least, COUNT(*) AS products
  FROM stock
  GROUP BY warehouse
""",
    ),
    Starter(
        "joined",
        "Two tables, joined",
        """\
name: revenue
sources:
  orders:
    topic: shop.orders
    columns: {id: BIGINT, customer_id: BIGINT, amount: 'DECIMAL(10, 2)'}
  customers:
    topic: shop.customers
    columns: {id: BIGINT, region: STRING}
query: |
  SELECT c.region, SUM(o.amount) AS revenue, COUNT(*) AS orders
  FROM orders AS o JOIN customers AS c ON o.customer_id = c.id
  GROUP BY c.region
""",
    ),
    Starter(
        "chained",
        "The changelog of another job",
        """\
name: sizes
source:
  topic: items-changes
  format: changelog-json
columns: {name: STRING, sum_cnt: INT, top: INT, n: BIGINT}
query: |
  SELECT n, COUNT(*) AS names, SUM(sum_cnt) AS total
  FROM items
  GROUP BY n
""",
    ),
)


def find_starter(name: str) -> Starter:
    """Return the starter of a name, or the first one."""
    return next((each for each in STARTERS if each.name == name), STARTERS[0])


def with_free_name(text: str, taken: Container[str]) -> str:
    """Return the text with a job name that no job has yet."""
    lines = text.split("\n")
    index = next((at for at, line in enumerate(lines) if line.startswith(_NAME)), None)
    if index is None or (name := lines[index].removeprefix(_NAME)) not in taken:
        return text
    number = next(number for number in range(2, 1_000_000) if f"{name}-{number}" not in taken)
    lines[index] = f"{_NAME}{name}-{number}"
    return "\n".join(lines)
