"""Metrics: what is told of requests, of an epoch's phases and of a table's parts, bounded."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from schemas.spec.file import Document, load_spec, validate
from schemas.spec.job import JobSpec
from service.request_counts import BOUNDS, RequestCounts
from service.routes import metrics
from service.supervision.lags import lag_by_source
from tests.support.epoch_rows import epoch_row
from tests.support.service.served import Served
from tests.support.service.tables import WatchedTable

JOB = "/v1/jobs/items"


@pytest.fixture(scope="module")
def watched(served: Served) -> WatchedTable:
    watched = WatchedTable(served)
    watched.write({"a": (1, 5), "b": (2,)}, {"a": (1,)})
    watched.seen()
    return watched


def read_sample(text: str, name: str, *labels: str) -> float:
    """The value of the one sample with these labels."""
    (line,) = (
        line
        for line in text.splitlines()
        if line.startswith(name + "{") and all(label in line for label in labels)
    )
    return float(line.rpartition(" ")[2])


def test_requests_are_counted_by_route_and_nothing_a_client_says_makes_a_series(
    watched: WatchedTable,
) -> None:
    with watched.served.client() as client:
        for _ in range(3):
            assert client.get(f"{JOB}/results/a").status_code == 200  # answered before routing
        assert client.get(f"{JOB}/results/nobody").status_code == 404
        assert client.get("/v1/jobs/nobody").status_code == 404
        for number in range(5):
            client.get(f"/nowhere/{number}")
            client.request(f"X{number}", "/v1/jobs")
        text = client.get("/metrics").text
    requests, seconds = "retally_http_requests_total", "retally_http_request_seconds"
    route = 'route="/v1/jobs/{name}/results/{key}"'
    assert read_sample(text, requests, route, 'status="200"', 'method="GET"') == 3
    assert read_sample(text, requests, route, 'status="404"') == 1
    assert read_sample(text, requests, 'route="/v1/jobs/{name}"', 'status="404"') == 1
    assert read_sample(text, requests, 'route="other"', 'method="GET"') == 5
    assert sum("X1" in line or "nowhere" in line for line in text.splitlines()) == 0
    assert read_sample(text, f"{seconds}_count", route) == 4
    buckets = [
        float(line.rpartition(" ")[2])
        for line in text.splitlines()
        if line.startswith(f"{seconds}_bucket") and route in line
    ]
    assert buckets == sorted(buckets)
    assert (len(buckets), buckets[-1]) == (len(BOUNDS) + 1, 4)


def test_a_duration_on_a_bound_is_within_it() -> None:
    counts = RequestCounts()
    for seconds in (0.0, 0.001, 0.0011, 10.0, 11.0):
        counts.count("/x", "GET", 200, seconds)
    (durations,) = counts.durations.values()
    assert (durations.counts[0], durations.counts[1]) == (2, 1)
    assert (durations.counts[-2], durations.counts[-1]) == (1, 1)


def test_parts_of_the_table_are_told_with_rows_and_bytes(watched: WatchedTable) -> None:
    with watched.served.client() as client:
        text = client.get("/metrics").text
    reader = watched.table.reader()
    for part in ("changelog", "accumulators", "multisets", "epochs"):
        files = [file for file in reader.files if file.part == part]
        labels = ('job="items"', f'part="{part}"')
        assert read_sample(text, "retally_table_files", *labels) == len(files)
        assert read_sample(text, "retally_table_rows", *labels) == sum(file.rows for file in files)
        assert read_sample(text, "retally_table_bytes", *labels) == sum(file.size for file in files)
    assert read_sample(text, "retally_job_moved", 'job="items"') == 0


def test_what_the_topic_lacks_is_counted_in_epochs() -> None:
    def unpublished(epoch: int, **counters: int) -> int | None:
        return metrics._count_unpublished(epoch_row(epoch, counters=counters))

    assert unpublished(7, published=6) == 0
    assert unpublished(7, published=2) == 4
    assert unpublished(7) is None


def test_every_metric_is_in_the_document(watched: WatchedTable) -> None:
    with watched.served.client() as client:
        names = set(re.findall(r"^# TYPE (\w+) ", client.get("/metrics").text, re.MULTILINE))
    page = (Path(__file__).resolve().parents[3] / "docs" / "operations.md").read_text()
    listed = set(re.findall(r"`(retally_\w+)`", page))
    assert names == listed


def test_latencies_of_epochs_are_histograms_of_each_job(watched: WatchedTable) -> None:
    late = {"appended_ms": 0, "publish_latencies_ms": {"1": 700, "2": 3_000}}
    watched.table.epoch({("a",): (3,)}, **late)
    watched.table.epoch({("a",): (4,)})  # without records, and with nothing published since
    watched.seen()
    with watched.served.client() as client:
        text = client.get("/metrics").text
    commit, publish = (f"retally_job_{end}_latency_seconds" for end in ("commit", "publish"))
    job = 'job="items"'
    assert read_sample(text, f"{commit}_count", job) == 1
    assert read_sample(text, f"{commit}_bucket", job, 'le="0.1"') == 1
    assert [
        read_sample(text, f"{publish}_bucket", job, f'le="{bound}"')
        for bound in ("0.5", "1.0", "2.5", "5.0", "+Inf")
    ] == [0, 1, 1, 2, 2]
    assert read_sample(text, f"{publish}_sum", job) == 3.7


def test_a_source_that_repeats_itself_is_in_the_document_the_metrics_and_the_page(
    watched: WatchedTable,
) -> None:
    repeated = {"epoch": 2, "topic": "shop", "partition": 2, "offset": 435, "count": 3}
    with watched.served.client() as client:
        assert client.get(JOB).json()["source_repeats"] is None
    watched.table.epoch({("a",): (1, 5)}, source_repeats=3, source_repeated=repeated)
    watched.seen()
    with watched.served.client() as client:
        assert client.get(JOB).json()["source_repeats"] == repeated
        text = client.get("/metrics").text
        page = client.get("/jobs/items").text
    assert read_sample(text, "retally_job_source_repeats", 'job="items"') == 3
    assert read_sample(text, "retally_job_counted_total", 'what="source_repeats"') == 3
    (notice,) = re.findall('<p class="notice (.+?)">The source repeats itself(.+?)</p>', page)
    assert notice[0] == "warn"
    assert "shop/2 offset 435" in notice[1] and "dedupe: pk" in notice[1]


def two_sources() -> JobSpec:
    columns = {"id": "INT"}
    orders = {"topic": "shop", "table": "orders", "columns": columns}
    customers = {"topics": ["shop", "crm"], "table": "customers", "columns": columns}
    document = {
        "name": "revenue",
        "sources": {
            "orders": orders,
            "customers": {**customers, "primary_key": ["id"], "dedupe": "pk"},
        },
        "query": "SELECT COUNT(*) AS n FROM orders JOIN customers USING (id)",
    }
    return validate(JobSpec, Document("", document))


def test_a_partition_is_measured_with_the_sources_that_read_it() -> None:
    spec = two_sources()
    place = {"job": "revenue", "topic": "shop", "partition": "0"}
    labels = metrics._label_partition("revenue", spec, "shop", "0")
    assert labels == {**place, "source": "orders,customers"}
    lags = lag_by_source(spec, {"shop/0": 3, "shop/1": 4, "crm/0": 5})
    assert lags == {"orders": 7, "customers": 12}


def test_repeats_are_an_error_if_one_source_of_the_topic_has_no_dedupe() -> None:
    place = {"epoch": 2, "partition": 2, "offset": 435, "count": 3}
    for topic, count in (("shop", 3), ("crm", 0)):
        row = epoch_row(7, counters={"source_repeated": {**place, "topic": topic}})
        assert metrics._count_repeats(two_sources(), row) == count


def test_repeats_are_no_error_of_a_job_with_dedupe() -> None:
    columns = {"id": "INT", "name": "STRING"}
    query = "SELECT name, COUNT(*) AS n FROM t GROUP BY name"
    plain = {"name": "items", "source": {"topic": "t"}, "columns": columns, "query": query}
    place = {"epoch": 2, "topic": "t", "partition": 2, "offset": 435, "count": 3}
    row = epoch_row(7, counters={"source_repeated": place})
    assert metrics._count_repeats(load_spec(plain), row) == 3
    deduped = load_spec(plain | {"primary_key": ["id"], "dedupe": "pk"})
    assert metrics._count_repeats(deduped, row) == 0
