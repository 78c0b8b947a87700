"""Metrics of all jobs and of the service, in the Prometheus text format."""

from __future__ import annotations

import platform
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata

import msgspec

from schemas.spec.job import JobSpec
from schemas.table.epoch import EpochRow
from service.histogram import Histogram
from service.live.table import LiveTable
from service.request_counts import RequestCounts
from service.runtime import Runtime
from service.supervision.register import Actual

PHASES = ("plan", "tasks", "check", "commit", "publish")

_Labels = dict[str, str]
_Sample = tuple[_Labels, float]
_Newest = Sequence[tuple[str, LiveTable, EpochRow]]

# Metrics of a job's newest epoch: name without the prefix retally_job_, help text. All are gauges.
_EPOCH_METRICS = {
    "epoch": "The newest epoch",
    "groups": "Live groups",
    "groups_below_zero": "Groups kept without a row: more rows were retracted than inserted",
    "commit_age_seconds": "Seconds since the commit of the newest epoch",
    "watermark_timestamp_seconds": "The watermark, in seconds since 1970",
    "active": "0 while all partitions are idle",
    "event_lag_seconds": "Time from the greatest row time of the newest epoch to its commit",
    "compute_seconds": "Seconds that the newest epoch took before its commit",
    "unpublished_epochs": "Epochs not yet published when the newest epoch was committed",
    "moved": "1 if offsets were moved manually, so that results do not cover all rows",
    "source_repeats": "Places where the source began to repeat itself, if it has no dedupe: pk",
    "images": "Source rows whose last image the job keeps",
    "snapshot_rows": "Rows read of the snapshots of the sources",
    "snapshot_parts_left": "Parts of these snapshots that are not read yet",
    "lag_records": "Unread records of the source",
    "read_per_second": "Messages read, over the last seconds",
    "changes_per_second": "Changelog rows, over the last seconds",
    "epochs_per_second": "Epochs, over the last seconds",
    "watermark_ms": "Until 0.3: use retally_job_watermark_timestamp_seconds",
    "event_lag_ms": "Until 0.3: use retally_job_event_lag_seconds",
}

# Metrics of a view: name without the prefix retally_view_, help text. All are gauges.
_VIEW_METRICS = {
    "groups": "Live groups of a view",
    "changes_per_second": "Changelog rows of a view, over the last seconds",
    "fold_seconds": "Seconds of the longest fold task of a view in the newest epoch",
}
# Counters that each view has for itself; all views share the others, such as `read`.
_OF_VIEW = (
    "groups_touched",
    "groups_in_arrays",
    "quarantined",
    "late",
    "dropped_retractions",
    "unmatched_retractions",
    "misfits",
    "expired",
    "closed",
    "changelog_rows",
)


@dataclass(frozen=True, slots=True)
class _Family:
    """All samples of one metric. A suffix extends the name in the line of a sample."""

    name: str
    help: str
    samples: Iterable[_Sample | tuple[_Labels, float, str]]
    kind: str = "gauge"

    def format_lines(self) -> Iterator[str]:
        yield f"# HELP {self.name} {self.help}."
        yield f"# TYPE {self.name} {self.kind}"
        for labels, value, *suffix in self.samples:
            inside = ",".join(f'{key}="{_escape(text)}"' for key, text in labels.items())
            braces = f"{{{inside}}}" if inside else ""
            yield f"{self.name}{''.join(suffix)}{braces} {_format_number(value)}"


def format_metrics(runtime: Runtime) -> str:
    """Return all metrics as text."""
    newest = runtime.list_newest_epochs()
    families = [
        *_list_jobs(runtime),
        *_list_epochs(runtime, newest),
        *_list_views(runtime, newest),
        *_list_latencies(newest),
        *_list_partitions(runtime, newest),
        *_list_table_sizes(runtime, newest),
        *_list_requests(runtime.request_counts),
        *_list_statements(runtime),
        *_list_service(runtime),
    ]
    return "\n".join(line for family in families for line in family.format_lines()) + "\n"


def _list_jobs(runtime: Runtime) -> list[_Family]:
    records = runtime.register.list_jobs()
    states = [
        ({"job": record.name, "state": str(state)}, float(record.actual == state))
        for record in records
        for state in Actual
    ]
    failures = [({"job": record.name}, record.failures) for record in records]
    waiting = [({"job": record.name}, float(record.waits)) for record in records]
    waiting_help = "1 while a running job waits for executors of its cluster"
    return [
        _Family("retally_job_state", "1 for the actual state of a job, 0 for all others", states),
        _Family("retally_job_failures", "Consecutive failures of a job", failures),
        _Family("retally_job_waiting", waiting_help, waiting),
    ]


def _list_epochs(runtime: Runtime, newest_epochs: _Newest) -> list[_Family]:
    samples: dict[str, list[_Sample]] = {name: [] for name in _EPOCH_METRICS}
    for name, live_table, newest in newest_epochs:
        for metric, value in _read_epoch(runtime, name, live_table, newest).items():
            if value is not None:
                samples[metric].append(({"job": name}, value))
    counted = [
        ({"job": name, "what": what}, count)
        for name, _, _ in newest_epochs
        for what, count in sorted(_sum_totals(runtime.find_views(name)).items())
    ]
    phases = [
        ({"job": name, "phase": phase}, round(ms / 1_000, 6))
        for name, _, newest in newest_epochs
        for phase, ms in newest.counts.phases_ms.items()
        if phase in PHASES
    ]
    counted_help = "Counters of the epochs since the service started, by counter"
    phases_help = "Seconds of the newest epoch by phase; commit and publish are of earlier epochs"
    return [
        *(
            _Family(f"retally_job_{name}", help_text, samples[name])
            for name, help_text in _EPOCH_METRICS.items()
        ),
        _Family("retally_job_counted_total", counted_help, counted, "counter"),
        _Family("retally_job_phase_seconds", phases_help, phases),
    ]


def _sum_totals(views: Mapping[str, LiveTable]) -> dict[str, int]:
    """Return the counters of a job: sums over its views of what each view counts for itself.

    All views share most refused messages, so `quarantined` is that of the view with the most.
    """
    totals = [dict(each.totals) for each in views.values()]
    summed = dict(totals[0]) if totals else {}
    for what in _OF_VIEW:
        if what in summed:
            counts = [each.get(what, 0) for each in totals]
            summed[what] = max(counts) if what == "quarantined" else sum(counts)
    return summed


def _list_views(runtime: Runtime, newest_epochs: _Newest) -> list[_Family]:
    """Return the metrics of each view of the jobs with several."""
    samples: dict[str, list[_Sample]] = {name: [] for name in _VIEW_METRICS}
    counted: list[_Sample] = []
    for job, _, _ in newest_epochs:
        views = runtime.find_views(job)
        for view, live_table in sorted(views.items()) if set(views) != {""} else ():
            newest = live_table.newest
            if newest is None:
                continue
            label = {"job": job, "view": view}
            changes = live_table.compute_rates().changes_per_second
            values = (newest.counts.groups, changes, newest.counts.fold_seconds)
            for name, value in zip(_VIEW_METRICS, values, strict=True):
                if value is not None:
                    samples[name].append((label, value))
            totals = dict(live_table.totals)
            counted += [
                ({**label, "what": what}, totals[what])
                for what in sorted(_OF_VIEW)
                if what in totals
            ]
    counted_help = "Counters of a view since the service started, by counter"
    return [
        *(
            _Family(f"retally_view_{name}", help_text, samples[name])
            for name, help_text in _VIEW_METRICS.items()
        ),
        _Family("retally_view_counted_total", counted_help, counted, "counter"),
    ]


def _read_epoch(
    runtime: Runtime, name: str, live_table: LiveTable, newest: EpochRow
) -> dict[str, float | None]:
    """Return the values of _EPOCH_METRICS for one job; None for unknown ones."""
    rates = [each.compute_rates() for each in runtime.find_views(name).values()]
    lag = runtime.lags.compute_lag(name, live_table.spec, newest)
    changes = round(sum(each.changes_per_second for each in rates), 1)
    return {
        "epoch": newest.epoch,
        "groups": runtime.count_groups(name),
        "groups_below_zero": runtime.count_groups_below_zero(name),
        "commit_age_seconds": round(time.time() - newest.committed_at / 1e6, 3),
        "watermark_ms": newest.watermark,
        "watermark_timestamp_seconds": _to_seconds(newest.watermark),
        "active": float(newest.time.status == "active"),
        "event_lag_ms": newest.counts.event_lag_ms,
        "event_lag_seconds": _to_seconds(newest.counts.event_lag_ms),
        "compute_seconds": newest.counts.compute_seconds,
        "unpublished_epochs": _count_unpublished(newest),
        "moved": float(newest.moved is not None),
        "source_repeats": _count_repeats(live_table.spec, newest),
        "images": newest.counts.images,
        **_count_snapshots(newest),
        "lag_records": None if lag is None else lag.records,
        **msgspec.structs.asdict(live_table.compute_rates()),
        "changes_per_second": changes,
    }


def _count_snapshots(newest: EpochRow) -> dict[str, float | None]:
    found = newest.counts.snapshot.values()
    left = [each.plan.parts - each.part for each in found if each.plan is not None]
    return {
        "snapshot_rows": sum(each.rows for each in found) if found else None,
        "snapshot_parts_left": sum(left) if left else None,
    }


def _to_seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1_000


def _count_repeats(spec: JobSpec, newest: EpochRow) -> int:
    """Return how often the source repeated itself and rows may have counted twice."""
    repeated = newest.counts.source_repeated
    return 0 if repeated is None or spec.dedupes(repeated.topic) else repeated.count


def _count_unpublished(newest: EpochRow) -> int | None:
    """Return the unpublished epochs; None without a sink or before its first epoch."""
    published = newest.counts.published
    return None if published is None else max(0, newest.epoch - 1 - published)


def _list_latencies(newest_epochs: _Newest) -> list[_Family]:
    """Return the latencies of the epochs since the service started, of jobs that have some."""
    histograms = {
        "commit": [(name, live_table.commit_latencies) for name, live_table, _ in newest_epochs],
        "publish": [(name, live_table.publish_latencies) for name, live_table, _ in newest_epochs],
    }
    ends = {"commit": "the commit of its results", "publish": "their publication"}
    return [
        _Family(
            f"retally_job_{phase}_latency_seconds",
            f"Seconds from the append of an epoch's oldest record to {ends[phase]}",
            [
                sample
                for name, histogram in found
                if any(histogram.counts)
                for sample in _list_buckets({"job": name}, histogram)
            ],
            "histogram",
        )
        for phase, found in histograms.items()
    ]


def _list_partitions(runtime: Runtime, newest_epochs: _Newest) -> list[_Family]:
    """Return the lag, watermark and state of each partition."""
    lags: list[_Sample] = []
    watermarks: list[_Sample] = []
    states: list[_Sample] = []
    for name, live_table, newest in newest_epochs:
        spec = live_table.spec
        lag = runtime.lags.compute_lag(name, spec, newest)
        for name_of_partition, records in () if lag is None else lag.partitions.items():
            topic, _, partition = name_of_partition.rpartition("/")
            lags.append((_label_partition(name, spec, topic, partition), records))
        for topic, source in newest.time.topics.items():
            for partition, state in source.partitions.items():
                label = _label_partition(name, spec, topic, partition)
                if state.watermark is not None:
                    watermarks.append((label, state.watermark))
                states.append(({**label, "state": "idle"}, float(state.idle)))
                states.append(({**label, "state": "ahead"}, float(state.ahead)))
    watermark_help = "The watermark of a partition, in seconds since 1970"
    old_help = "Until 0.3: use retally_partition_watermark_timestamp_seconds"
    in_seconds = [(label, at / 1_000) for label, at in watermarks]
    state_help = "1 while a partition is idle, or ahead and therefore not read"
    return [
        _Family("retally_partition_lag_records", "Unread records of a partition", lags),
        _Family("retally_partition_watermark_timestamp_seconds", watermark_help, in_seconds),
        _Family("retally_partition_watermark_ms", old_help, watermarks),
        _Family("retally_partition_state", state_help, states),
    ]


def _label_partition(job: str, spec: JobSpec, topic: str, partition: str) -> dict[str, str]:
    """Return the labels of a partition, with its source if the job has several."""
    label = {"job": job, "topic": topic, "partition": partition}
    return label if spec.sources is None else label | {"source": ",".join(spec.sources_of(topic))}


def _list_table_sizes(runtime: Runtime, newest_epochs: _Newest) -> list[_Family]:
    sizes = [
        ({"job": name, "part": size.part}, size)
        for name, live_table, _ in newest_epochs
        if (found := runtime.state_sizes.read(live_table.paths.at_view("").table)) is not None
        for size in found.parts  # of all views
    ]
    rows = [(label, float(size.rows)) for label, size in sizes]
    octets = [(label, float(size.size)) for label, size in sizes]
    files = [(label, float(size.files)) for label, size in sizes]
    rows_help = "Rows of a part of the table, including replaced ones"
    return [
        _Family("retally_table_rows", rows_help, rows),
        _Family("retally_table_bytes", "Bytes of a part of the table", octets),
        _Family("retally_table_files", "Files of a part of the table", files),
    ]


def _list_requests(counts: RequestCounts) -> list[_Family]:
    answered = [
        ({"route": route, "method": method, "status": str(status)}, count)
        for (route, method, status), count in sorted(counts.answered.items())
    ]
    answered_help = (
        "Requests by route, method and status; 0 if the client closed the connection first"
    )
    durations = [
        sample
        for (route, method), histogram in sorted(counts.durations.items())
        for sample in _list_buckets({"route": route, "method": method}, histogram)
    ]
    durations_help = "Seconds until the response started, by route and method"
    return [
        _Family("retally_http_requests_total", answered_help, answered, "counter"),
        _Family("retally_http_request_seconds", durations_help, durations, "histogram"),
    ]


def _list_statements(runtime: Runtime) -> list[_Family]:
    """Return the SQL statements by protocol, and the connections of PostgreSQL's clients."""
    counts, clients = runtime.sql_answers.counts, runtime.postgres_counts
    outcomes = [
        ({"protocol": protocol, "outcome": outcome}, count)
        for (protocol, outcome), count in sorted(counts.outcomes.items())
    ]
    durations = [
        sample
        for protocol, histogram in counts.durations.items()
        if any(histogram.counts)
        for sample in _list_buckets({"protocol": protocol}, histogram)
    ]
    states = {"signed_in": clients.signed_in, "waiting": clients.waiting}
    connections = [({"state": state}, count) for state, count in states.items()]
    refused = [({"sqlstate": code}, count) for code, count in sorted(clients.refused.items())]
    seconds_help = "Seconds until the answer of a statement, its turn included, by protocol"
    open_help = "Open connections of PostgreSQL's clients: signed in, or waiting to"
    refused_help = "Connections of PostgreSQL's clients that could not sign in, by SQLSTATE"
    return [
        _Family(
            "retally_sql_statements_total",
            "SQL statements for the workers, by protocol and outcome",
            outcomes,
            "counter",
        ),
        _Family("retally_sql_statement_seconds", seconds_help, durations, "histogram"),
        _Family("retally_postgres_connections", open_help, connections),
        _Family("retally_postgres_refused_total", refused_help, refused, "counter"),
    ]


def _list_buckets(label: _Labels, histogram: Histogram) -> Iterator[tuple[_Labels, float, str]]:
    total = 0
    for bound, total in histogram.list_buckets():
        yield {**label, "le": bound}, total, "_bucket"
    yield label, round(histogram.seconds, 6), "_sum"
    yield label, total, "_count"


def _list_service(runtime: Runtime) -> list[_Family]:
    followers: list[_Sample] = [({}, runtime.stream_slots.total)]
    unfinished: list[_Sample] = [({}, len(runtime.register.list_unfinished()))]
    unfinished_help = "Operations that are waiting or running"
    versions = {"version": metadata.version("retally"), "python": platform.python_version()}
    disk = shutil.disk_usage(runtime.settings.data)
    return [
        _Family("retally_build_info", "The versions of this service; always 1", [(versions, 1)]),
        _Family("retally_data_free_bytes", "Free disk of the data directory", [({}, disk.free)]),
        _Family("retally_data_disk_bytes", "Its whole disk", [({}, disk.total)]),
        _Family("retally_followers", "Open streams of changes", followers),
        _Family("retally_operations_unfinished", unfinished_help, unfinished),
    ]


def _format_number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
