"""Metrics in Prometheus' text format, of every job and of the service itself."""

from __future__ import annotations

import time
from collections.abc import Iterable

from service.register import Actual
from service.runtime import Runtime

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
    _family(
        lines, "retally_followers", "gauge", "Open streams of changes",
        [({}, runtime.following)],
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
            "lag_records": (runtime.lags.of(name, newest) or {}).get("records"),
            **follower.rates(),
        }
        for metric, value in values.items():
            if value is not None:
                samples[metric].append((label, value))
    for metric, (kind, help_text) in families.items():
        _family(lines, f"retally_job_{metric}", kind, help_text, samples[metric])


def _family(
    lines: list[str], name: str, kind: str, help_text: str, samples: Iterable[_Sample]
) -> None:
    lines.append(f"# HELP {name} {help_text}.")
    lines.append(f"# TYPE {name} {kind}")
    for labels, value in samples:
        inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
        lines.append(
            f"{name}{{{inside}}} {_number(value)}" if inside else f"{name} {_number(value)}"
        )


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
