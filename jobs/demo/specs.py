"""The demo's two jobs: one over the products, one that joins them with a second table.

    shop.product ─┬─► items: a row a name ───────────► items-changes
    shop.storage ─┴─► warehouses: a row a warehouse ─► warehouses-changes

If a name moves to another warehouse, all of its products move from one result to another.
"""

from __future__ import annotations

from jobs.demo.shop import STORAGE_COLUMNS, TABLE_COLUMNS
from schemas.types.json_types import JsonObject

SOURCE_TOPIC, SINK_TOPIC, PARTITIONS = "shop.product", "items-changes", 4
STORAGE_TOPIC = "shop.storage"
_PRODUCT: JsonObject = {"topic": SOURCE_TOPIC, "database": "shop", "table": "product"}
_STORAGE: JsonObject = {"topic": STORAGE_TOPIC, "database": "shop", "table": "storage"}
_COMMON: JsonObject = {
    "minibatch": {"size": 5000, "latency": "1s"},
    "mirror": "off",  # the first comes after a minute, and the demo should start fast
}

ITEMS: JsonObject = {
    "name": "items",
    "source": _PRODUCT,
    "columns": TABLE_COLUMNS,
    "query": "SELECT name, SUM(cnt), MAX(cnt) AS top, COUNT(*) AS n FROM product GROUP BY name",
    "sink": {"topic": SINK_TOPIC, "partitions": PARTITIONS},
    **_COMMON,
}
WAREHOUSES: JsonObject = {
    "name": "warehouses",
    "sources": {
        "product": {**_PRODUCT, "columns": TABLE_COLUMNS},
        "storage": {**_STORAGE, "columns": STORAGE_COLUMNS},
    },
    "query": "SELECT s.warehouse, SUM(p.cnt) AS sum_cnt, MAX(p.cnt) AS top, COUNT(*) AS n "
    "FROM product AS p JOIN storage AS s ON p.name = s.name GROUP BY s.warehouse",
    "sink": {"topic": "warehouses-changes", "partitions": 1},
    **_COMMON,
}
SPECS = (ITEMS, WAREHOUSES)

# What to try in another terminal, below the address of the service's jobs.
TOUR = {
    "the current result of a group": "curl {jobs}/items/results/bolt",
    "explain it: the values behind MAX, the epochs that changed it, their source offsets": (
        "curl {jobs}/items/results/bolt/explain"
    ),
    "follow its changes: each retraction comes before the row that replaces it": (
        "curl -N '{jobs}/items/changes?key=bolt'"
    ),
    "a second job joins the products with their warehouses, and both tables change": (
        "curl '{jobs}/warehouses/results?order=warehouse' -H 'Accept: text/csv'"
    ),
    "messages that are bad on purpose, each with the reason of its refusal": (
        "curl '{jobs}/items/quarantine?limit=3'"
    ),
}
