"""Metrics in Prometheus' text format, of every job and of the service itself."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

from schemas.table.epoch import EpochRow
from service.live.follower import Follower
from service.request_counts import BOUNDS, RequestCounts
from service.runtime import Runtime
from service.supervision.register import Actual

PHASES = ("plan", "tasks", "judge", "commit", "publish")

_Sample = tuple[dict[str, str], float]


def text(runtime: Runtime) -> str:
    """All metrics; labels are job names and states, which need no escapes but get them."""
    lines: list[str] = []
    records = runtime.register.jobs()
    _family(
        lines, "retally_job_state", "gauge", "1 for the state that a job is in",
        [
            ({"job": record.name, "state": str(state)}, float(record.actual == state))
            for record in records
            for state in Actual
        ],
    )  # fmt: skip
    _family(
        lines, "retally_job_failures", "gauge", "Failures in a row of a job",
        [({"job": record.name}, record.failures) for record in records],
    )  # fmt: skip
    _of_epochs(lines, runtime)
    _of_state(lines, runtime)
    _of_requests(lines, runtime.request_counts)
    _family(
        lines, "retally_followers", "gauge", "Open streams of changes",
        [({}, runtime.following.total)],
    )  # fmt: skip
    unfinished = runtime.register.unfinished()
    _family(
        lines, "retally_operations_unfinished", "gauge", "Operations that wait or run",
        [({}, len(unfinished))],
    )  # fmt: skip
    return "\n".join(lines) + "\n"


def _of_epochs(lines: list[str], runtime: Runtime) -> None:
    """What the newest epoch of each job says."""
    standing = runtime.followers_with_epochs()
    families = {
        "epoch": ("gauge", "The newest epoch"),
        "groups": ("gauge", "Groups that are live"),
        "commit_age_seconds": ("gauge", "Since the newest epoch was committed"),
        "watermark_ms": ("gauge", "The watermark, in milliseconds since 1970"),
        "active": ("gauge", "0 while all partitions are idle"),
        "event_lag_ms": ("gauge", "From the greatest time of the newest rows to their commit"),
        "compute_seconds": ("gauge", "What the newest epoch took before its commit"),
        "unpublished_epochs": (
            "gauge",
            "Epochs that the topic did not have yet when the newest one was committed",
        ),
        "moved": ("gauge", "1 where offsets were moved by hand: results are not the query"),
        "images": ("gauge", "Rows of the source whose last image is kept"),
        "lag_records": ("gauge", "Records of the source that are not in an epoch yet"),
        "read_per_second": ("gauge", "Messages read, over the last seconds"),
        "changes_per_second": ("gauge", "Changelog rows, over the last seconds"),
        "epochs_per_second": ("gauge", "Epochs, over the last seconds"),
    }
    samples: dict[str, list[_Sample]] = {name: [] for name in families}
    for name, follower, newest in standing:
        label = {"job": name}
        values: dict[str, float | None] = {
            "epoch": newest.epoch,
            "groups": newest.counters.get("groups"),
            "commit_age_seconds": round(time.time() - newest.committed_at / 1e6, 3),
            "watermark_ms": newest.watermarks.get("combined"),
            "active": float(newest.watermarks.get("status", "active") == "active"),
            "event_lag_ms": newest.counters.get("event_lag_ms"),
            "compute_seconds": newest.counters.get("compute_seconds"),
            "unpublished_epochs": _unpublished(newest),
            "moved": float(newest.moved is not None),
            "images": newest.counters.get("images"),
            "lag_records": (runtime.lags.of(name, newest) or {}).get("records"),
            **follower.rates(),
        }
        for metric, value in values.items():
            if value is not None:
                samples[metric].append((label, value))
    for metric, (kind, help_text) in families.items():
        _family(lines, f"retally_job_{metric}", kind, help_text, samples[metric])
    _family(
        lines, "retally_job_counted_total", "counter",
        "What the epochs counted that this service has followed, by what",
        [
            ({"job": name, "what": what}, count)
            for name, follower, _ in standing
            for what, count in sorted(follower.totals.items())
        ],
    )  # fmt: skip
    _family(
        lines, "retally_job_phase_seconds", "gauge",
        "Where the time of the newest epoch went; commit and publish are of earlier ones",
        [
            ({"job": name, "phase": phase}, round(ms / 1_000, 6))
            for name, _, newest in standing
            for phase, ms in newest.counters.get("phases_ms", {}).items()
            if phase in PHASES
        ],
    )  # fmt: skip
    _of_partitions(lines, runtime, standing)


def _unpublished(newest: EpochRow) -> int | None:
    """None where there is no topic, or it had nothing yet."""
    published = newest.counters.get("published")
    return None if published is None else max(0, newest.epoch - 1 - published)


def _of_state(lines: list[str], runtime: Runtime) -> None:
    """What the tables take, part by part."""
    sizes = [
        ({"job": name, "part": size.part}, size)
        for name, follower, _ in runtime.followers_with_epochs()
        for size in getattr(runtime.state_sizes.of(follower.places.table), "parts", ())
    ]
    for what, help_text in (
        ("rows", "Rows of a part of the table, those that newer ones replace too"),
        ("bytes", "Bytes of a part of the table"),
        ("files", "Files of a part of the table"),
    ):
        samples = [
            (label, float({"rows": size.rows, "bytes": size.size, "files": size.files}[what]))
            for label, size in sizes
        ]
        _family(lines, f"retally_table_{what}", "gauge", help_text, samples)


def _of_requests(lines: list[str], counts: RequestCounts) -> None:
    """Requests by route, as far as there are any."""
    _family(
        lines, "retally_http_requests_total", "counter",
        "Requests, by route, method and status; 0 where the client was gone before the answer",
        [
            ({"route": route, "method": method, "status": str(status)}, count)
            for (route, method, status), count in sorted(counts.answered.items())
        ],
    )  # fmt: skip
    name = "retally_http_request_seconds"
    lines.append(f"# HELP {name} Until the answer began, by route and method.")
    lines.append(f"# TYPE {name} histogram")
    for (route, method), durations in sorted(counts.durations.items()):
        label = {"route": route, "method": method}
        total = 0
        for bound, count in zip((*BOUNDS, "+Inf"), list(durations.counts), strict=True):
            total += count
            _sample(lines, f"{name}_bucket", {**label, "le": str(bound)}, total)
        _sample(lines, f"{name}_sum", label, round(durations.seconds, 6))
        _sample(lines, f"{name}_count", label, total)


def _of_partitions(
    lines: list[str], runtime: Runtime, standing: Sequence[tuple[str, Follower, EpochRow]]
) -> None:
    """Where each partition of a source stands."""
    lags: list[_Sample] = []
    seen: list[_Sample] = []
    waits: list[_Sample] = []
    for name, _, newest in standing:
        found = runtime.lags.of(name, newest) or {"partitions": {}}
        for place, records in found["partitions"].items():
            topic, _, partition = place.rpartition("/")
            lags.append(({"job": name, "topic": topic, "partition": partition}, records))
        for topic, source in newest.watermarks.get("topics", {}).items():
            for partition, told in source["partitions"].items():
                label = {"job": name, "topic": topic, "partition": partition}
                if "watermark" in told:
                    seen.append((label, told["watermark"]))
                for state in ("idle", "ahead"):
                    waits.append(({**label, "state": state}, float(told.get(state, False))))
    help_text = "Records of a partition that are not in an epoch yet"
    _family(lines, "retally_partition_lag_records", "gauge", help_text, lags)
    help_text = "The watermark of a partition, in milliseconds since 1970"
    _family(lines, "retally_partition_watermark_ms", "gauge", help_text, seen)
    help_text = "1 while a partition is idle, or ahead and not read"
    _family(lines, "retally_partition_state", "gauge", help_text, waits)


def _family(
    lines: list[str], name: str, kind: str, help_text: str, samples: Iterable[_Sample]
) -> None:
    lines.append(f"# HELP {name} {help_text}.")
    lines.append(f"# TYPE {name} {kind}")
    for labels, value in samples:
        _sample(lines, name, labels, value)


def _sample(lines: list[str], name: str, labels: Mapping[str, str], value: float) -> None:
    inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    lines.append(f"{name}{{{inside}}} {_number(value)}" if inside else f"{name} {_number(value)}")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
