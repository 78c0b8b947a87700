"""Random specs of time, with one topic or two, and random messages for them."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from schemas.spec.file import load_spec
from schemas.table.epoch import TopicPartition

COLUMNS = {"k": "STRING", "t": "BIGINT", "upto": "BIGINT", "text": "STRING"}
ROW_TIMES: list[Any] = [
    {"column": "t"},
    {"expression": "COALESCE(t, upto * 2)"},
    {"expression": "CAST(text AS BIGINT)"},
    {"expression": "100 / (t - 20)"},
    {"expression": "COALESCE(t, __kafka)"},
]
FILTERS = ["k <> 'mark'", "upto > 20", "100 / (t - 20) > 3"]  # the last one fails on some rows
MARKERS: list[Any] = ["k = 'mark'", {"when": "k = 'mark'", "time": "upto"}]

Keys = dict[str, Any]
# Of each epoch: its messages (place, row, kind, time), and the time that passes after it.
Epochs = list[tuple[list[Any], int]]


@st.composite
def sections(draw: st.DrawFn, *, windowed: bool) -> Keys:
    """Draw a valid `watermark` section."""
    ms = st.integers(1, 12).map("{}ms".format)
    times = ROW_TIMES if windowed else [*ROW_TIMES, "es", "ts", "kafka", "ingestion"]
    section: Keys = {"time": draw(st.sampled_from(times)), "emit_every": draw(ms)}
    if section["time"] == "ingestion":
        section["generator"] = "automatic"
    else:
        kinds = ["bounded", "monotonous", "punctuated", "lag"]
        section["generator"] = draw(st.sampled_from(kinds))
    if section["generator"] not in ("monotonous", "automatic"):
        section["delay"] = draw(st.integers(0, 5).map("{}ms".format))
    if section["generator"] == "punctuated":
        section["marker"] = draw(st.sampled_from(MARKERS))
    if section["generator"] == "bounded":
        section["exact"] = draw(st.booleans())
    if section["generator"] in ("bounded", "monotonous", "punctuated"):
        section["within_epoch"] = draw(st.booleans())
    if section["generator"] not in ("lag", "automatic") and draw(st.booleans()):
        section["where"] = draw(st.sampled_from(FILTERS))
    if draw(st.booleans()):
        section["idle_after"] = draw(ms)
    if draw(st.booleans()):
        section["align"] = {"group": "g", "max_drift": draw(ms), "every": draw(ms)}
    return section


rows = st.fixed_dictionaries(
    {
        "k": st.sampled_from(["a", "b", "mark"]),
        "t": st.integers(0, 60).map(str) | st.none(),
        "upto": st.integers(0, 60).map(str) | st.none(),
        "text": st.sampled_from(["7", "30", "55", "no number"]),
    }
)
windowed_rows = rows.filter(lambda row: row["t"] is not None)


@st.composite
def specs(draw: st.DrawFn) -> Keys:
    """Draw a spec: one topic or two, each with a section of its own or without."""
    windowed = draw(st.booleans())
    own = sections(windowed=windowed)
    listed: list[Any] = [
        name if draw(st.booleans()) else {"topic": name, "watermark": draw(own)}
        for name in draw(st.sampled_from(["t", "tu"]))
    ]
    spec: Keys = {
        "name": "timed",
        "source": {"topics": listed},
        "columns": COLUMNS,
        "query": "SELECT k, COUNT(*) AS n FROM t GROUP BY k",
        "watermark": draw(own),
        "minibatch": {"size": 1_000_000, "latency": "1h"},
    }
    if windowed:
        spec["query"] = (
            "SELECT k, window_start, COUNT(*) AS n FROM t "
            "GROUP BY k, TUMBLE(t, INTERVAL '0.010' SECOND)"
        )
        spec["emit"] = "final"
        spec["allowed_lateness"] = draw(st.sampled_from(["0s", "4ms"]))
    return spec


@st.composite
def histories(draw: st.DrawFn, *, moments: tuple[int, ...] = (0, 1, 3, 20)) -> tuple[Keys, Epochs]:
    """Draw a spec and its epochs; one of `moments` passes after each of them."""
    spec = draw(specs())
    topics = load_spec(spec).source.topics
    message = st.tuples(
        st.builds(TopicPartition, st.sampled_from(topics), st.integers(0, 1)),
        windowed_rows if "emit" in spec else rows,
        st.sampled_from(["INSERT", "DELETE"]),
        st.integers(0, 60),  # es, ts and the time of the record
    )
    epochs = st.lists(
        st.tuples(st.lists(message, max_size=8), st.sampled_from(moments)), min_size=1, max_size=5
    )
    return spec, draw(epochs)


def steps_of(history: Epochs) -> list[Keys]:
    """Return the epochs as steps of a replay."""
    steps: list[Keys] = []
    for messages, passing in history:
        for (topic, partition), row, kind, time in messages:
            value = value_of(row, kind, time)
            steps.append({"message": value, "topic": topic, "partition": partition, "time": time})
        steps += [{"flush": True}, {"clock": passing}]
    return steps


def value_of(row: Keys, kind: str, time: int) -> str:
    return json.dumps({"type": kind, "data": [row], "es": time, "ts": time})
