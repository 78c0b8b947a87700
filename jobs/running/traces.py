"""Traces of epochs in OpenTelemetry: only where the environment names a collector.

    Phases ──► spans of an epoch and its phases ──► the SDK's thread ── OTLP ──► collector

The SDK reads its own variables (OTEL_EXPORTER_OTLP_ENDPOINT and others). It drops spans that it
cannot send; a job never waits for them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

from schemas import limits
from schemas.table.epoch import EpochRow

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider

log = logging.getLogger(__name__)

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
Spans = Mapping[str, tuple[int, int]]  # of each phase: when it began and ended, in nanoseconds


class EpochTraces:
    """Sends a trace of each epoch of a job."""

    def __init__(self, provider: TracerProvider, job: str) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("retally")
        self._job = job
        self._unpublished: dict[int, tuple[Context, int]] = {}  # by epoch: its span, its commit

    @classmethod
    def start(cls, job: str, environment: Mapping[str, str] = os.environ) -> Self | None:
        """Return the traces of a job if a collector is named and the SDK is installed."""
        if not any(environment.get(name) for name in _ENDPOINTS):
            return None
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import SERVICE_NAME, Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ImportError:
            log.warning("no traces are sent: OpenTelemetry is missing; pip install 'retally[otel]'")
            return None
        name = environment.get("OTEL_SERVICE_NAME", "retally")
        provider = TracerProvider(resource=Resource.create({SERVICE_NAME: name}))
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        return cls(provider, job)

    def add_epoch(self, row: EpochRow, spans: Spans) -> None:
        """Send the span of a committed epoch and those of its phases."""
        from opentelemetry.trace import set_span_in_context

        began, committed = next(iter(spans.values()))[0], spans["commit"][1]
        counts = row.counts
        whole = self._tracer.start_span(
            "epoch",
            start_time=began,
            attributes={
                "retally.job": self._job,
                "retally.epoch": row.epoch,
                "retally.kind": row.kind,
                "retally.messages": counts.read,
                "retally.rows": counts.rows,
                "retally.changelog_rows": counts.changelog_rows,
            },
        )
        context = set_span_in_context(whole)
        for name, (start, end) in spans.items():
            self._add_span(context, name, start, end)
        if (tasks := spans.get("tasks")) is not None:  # of many tasks, the longest of each kind
            decoded, folded = (
                _nanoseconds(counts.decode_seconds),
                _nanoseconds(counts.fold_seconds),
            )
            self._add_span(context, "decode", tasks[0], tasks[0] + decoded)
            self._add_span(context, "fold", tasks[1] - folded, tasks[1])
        whole.end(committed)
        self._unpublished[row.epoch] = context, committed
        if len(self._unpublished) > limits.PUBLISH_BACKLOG_EPOCHS_MAX:
            del self._unpublished[next(iter(self._unpublished))]

    def add_published(self, epoch: int, seconds: float) -> None:
        """Send the span of an epoch's publication; earlier epochs are published as well."""
        context, committed = self._unpublished.get(epoch, (None, 0))
        for older in [each for each in self._unpublished if each <= epoch]:
            del self._unpublished[older]
        if context is not None:
            self._add_span(context, "publish", committed, committed + _nanoseconds(seconds))

    def _add_span(self, context: Context, name: str, start: int, end: int) -> None:
        self._tracer.start_span(name, context, start_time=start).end(end)

    def close(self) -> None:
        """Send what is left."""
        self._provider.shutdown()


def _nanoseconds(seconds: float | None) -> int:
    return int((seconds or 0.0) * 1e9)
