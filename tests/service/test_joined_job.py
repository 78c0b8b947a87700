"""The service on a job of several sources: what it shows of each, before there is an epoch."""

from __future__ import annotations

import httpx

SPEC = """\
name: revenue
sources:
  orders: {topic: shop.orders, columns: {id: INT, customer_id: INT, amount: INT}}
  customers: {topic: crm.customers, columns: {id: INT, region: STRING}}
query: |
  SELECT c.region, SUM(o.amount) AS revenue
  FROM orders AS o JOIN customers AS c ON o.customer_id = c.id GROUP BY c.region
"""
OTHER = """\
name: names
source: {topic: crm.customers}
columns: {id: INT, region: STRING}
query: SELECT region, COUNT(*) AS n FROM customers GROUP BY region
"""


def test_a_job_of_several_sources_shows_each_of_them(client: httpx.Client) -> None:
    for name, spec in (("revenue", SPEC), ("names", OTHER)):
        put = client.put(f"/v1/jobs/{name}", content=spec)
        assert put.status_code == 201, put.text
    nodes = client.get("/v1/jobs/revenue/plan").json()["nodes"]
    assert [node["id"] for node in nodes if node["type"] == "Join"] == ["join-c"]
    scans = [node["attributes"] for node in nodes if node["type"] == "TableSourceScan"]
    assert [(each["source"], each["topics"]) for each in scans] == [
        ("orders", ["shop.orders"]),
        ("customers", ["crm.customers"]),
    ]
    page = client.get("/jobs/revenue").text
    assert "InnerJoin" in page and "customers AS c" in page
    lineage = client.get("/").text
    for edge in ("shop.orders feeds revenue", "crm.customers feeds revenue"):
        assert edge in lineage


def test_a_connection_that_the_service_lacks_is_named_at_its_source(client: httpx.Client) -> None:
    elsewhere = SPEC.replace("topic:", "connection: east, topic:", 1)
    found = client.post("/v1/jobs:validate", content=elsewhere).json()
    (error,) = found["errors"]
    assert (error["path"], error["line"]) == ("sources.orders.connection", 3)
