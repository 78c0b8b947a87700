"""Traces of epochs as a collector receives them, decoded by OpenTelemetry's own messages."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from jobs.edge.publisher.job_publisher import Published
from jobs.running.outcome import Phases
from jobs.running.traces import EpochTraces
from schemas import limits
from tests.support.epoch_rows import epoch_row

CLOSE_SECONDS_MAX = 15.0


class Collector(ThreadingHTTPServer):
    """Keeps the spans that it is sent."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.spans: list[Span] = []
        self.services: set[str] = set()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            attributes = {each.key: each.value for each in resource.resource.attributes}
            self.server.services.add(attributes["service.name"].string_value)
            for scope in resource.scope_spans:
                self.server.spans.extend(scope.spans)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with Collector() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.address)
        yield server
        server.shutdown()


def start() -> tuple[Phases, EpochTraces]:
    phases = Phases()
    traces = phases.traces = EpochTraces.start("items")
    assert traces is not None
    return phases, traces


def run_epoch(phases: Phases, epoch: int) -> None:
    phases.begin()
    for phase in ("plan", "tasks"):
        time.sleep(0.002)
        phases.lap(phase)
    counters = phases.end("check") | {"read": 7, "decode_seconds": 0.001, "fold_seconds": 0.0005}
    phases.finish(epoch_row(epoch, counters=counters))


def test_an_epoch_is_a_trace_of_its_phases(collector: Collector) -> None:
    phases, traces = start()
    run_epoch(phases, 1)
    phases.take_published = lambda: Published(1, 0.25, {})
    run_epoch(phases, 2)
    run_epoch(phases, 3)  # tells again of epoch 1
    traces.close()
    assert collector.services == {"retally"}
    by_trace = {
        root.attributes[1].value.int_value: {
            each.name: each for each in collector.spans if each.trace_id == root.trace_id
        }
        for root in collector.spans
        if not root.parent_span_id
    }
    inner = ["check", "commit", "decode", "epoch", "fold", "plan", "tasks"]
    assert {epoch: sorted(spans) for epoch, spans in by_trace.items()} == {
        1: sorted([*inner, "publish"]),
        2: inner,
        3: inner,
    }
    spans = by_trace[1]
    whole = spans.pop("epoch")
    names = ("retally.job", "retally.epoch", "retally.kind", "retally.messages")
    assert {each.key for each in whole.attributes} >= set(names)
    assert all(each.parent_span_id == whole.span_id for each in spans.values())
    published = spans.pop("publish")
    assert published.start_time_unix_nano == whole.end_time_unix_nano
    assert published.end_time_unix_nano - published.start_time_unix_nano == 250_000_000
    for each in spans.values():
        assert whole.start_time_unix_nano <= each.start_time_unix_nano
        assert each.start_time_unix_nano <= each.end_time_unix_nano <= whole.end_time_unix_nano
    order = [spans[name] for name in ("plan", "tasks", "check", "commit")]
    for before, after in pairwise(order):
        assert before.end_time_unix_nano == after.start_time_unix_nano


def test_without_a_collector_in_the_environment_there_are_no_traces() -> None:
    assert EpochTraces.start("items", {}) is None


def test_a_job_without_a_topic_remembers_few_epochs(collector: Collector) -> None:
    phases, traces = start()
    for epoch in range(limits.PUBLISH_BACKLOG_EPOCHS_MAX + 3):
        phases.begin()
        phases.lap("plan")
        phases.finish(epoch_row(epoch))
    assert len(traces._unpublished) == limits.PUBLISH_BACKLOG_EPOCHS_MAX
    traces.close()


def test_a_collector_that_is_away_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://127.0.0.1:9/v1/traces")
    phases, traces = start()
    began = time.monotonic()
    run_epoch(phases, 1)
    assert time.monotonic() - began < 1.0
    traces.close()
    assert time.monotonic() - began < CLOSE_SECONDS_MAX
