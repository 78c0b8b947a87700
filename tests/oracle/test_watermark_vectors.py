"""Watermarks against what Flink 2.2.1's own classes gave for the same steps.

The vectors belong to the reference documents, not to this repository: without them beside the
checkout these tests are skipped, and the skip says so. Flink's recorders of MUX and SIM know no
word for a source that becomes active again, so there `active` is left out of the comparison.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from jobs.core.time.combine import Multiplexer, Signal, Status, StatusWatermarkValve
from jobs.offline.watermarks import watermarks
from tests.support.jobs.epochs_by_hand import ByHand

VECTORS = Path(__file__).parents[3] / "shared" / "oracle" / "watermark_vectors.json"
MISSING = "NOT CHECKED AGAINST THE OUTSIDE VECTORS: watermark_vectors.json is not beside this one"

pytestmark = pytest.mark.skipif(not VECTORS.exists(), reason=MISSING)

# name -> step -> what we give there instead: FLINK-40475, which Flink fixed later.
FLUSHED = "all are idle, and the maximum is flushed whoever was the last"
SPEAKS = "it is the only candidate, and stands higher than what was given out"
FIXED: dict[str, dict[int, tuple[list[str], str]]] = {
    "X-40475-skippedFlush": {7: (["W20", "IDLE"], FLUSHED)},
    "X-40475-stall": {7: (["W20"], SPEAKS)},
}


def vectors(kind: str) -> list[Any]:
    if not VECTORS.exists():
        return []
    found = json.loads(VECTORS.read_text(encoding="utf-8"))["vectors"]
    return [pytest.param(each, id=each["name"]) for each in found if each["kind"] == kind]


def shown(signals: Iterable[Signal], *, active: bool = True) -> list[str]:
    texts = [s.upper() if isinstance(s, Status) else f"W{s}" for s in signals]
    return [text for text in texts if active or text != "ACTIVE"]


def test_every_vector_is_run() -> None:
    found = json.loads(VECTORS.read_text(encoding="utf-8"))["vectors"]
    assert len(found) == 35
    assert {each["kind"] for each in found} == {"VALVE", "MUX", "SIM"}
    assert FIXED.keys() <= {each["name"] for each in found}


@pytest.mark.parametrize("vector", vectors("VALVE"))
def test_the_valve_gives_what_flinks_gives(vector: dict[str, Any]) -> None:
    valve = StatusWatermarkValve(range(int(vector["args"]["n"])))
    fixed = FIXED.get(vector["name"], {})
    for number, (step, flink) in enumerate(vector["steps"]):
        channel, _, what = step.partition(":")
        if what in ("I", "A"):
            given = valve.set_status(int(channel), Status.IDLE if what == "I" else Status.ACTIVE)
        else:
            given = valve.advance(int(channel), int(what))
        wanted = fixed[number][0] if number in fixed else flink
        assert shown(given) == wanted, f"step {number}: {step}"
        assert number not in fixed or wanted != flink, "it is no difference any more"


@pytest.mark.parametrize("vector", vectors("MUX"))
def test_the_multiplexer_gives_what_flinks_gives(vector: dict[str, Any]) -> None:
    sources: Multiplexer[str] = Multiplexer()
    for step, flink in vector["steps"]:
        assert shown(_multiplexed(sources, step), active=False) == flink, step


def _multiplexed(sources: Multiplexer[str], step: str) -> list[Signal]:
    what, _, rest = step.partition(":")
    name, _, time = rest.partition(":")
    match what:
        case "r":
            sources.register(name)
        case "u":
            sources.unregister(name)
        case "d":
            sources.advance(name, int(time))
        case "di":
            sources.mark_idle(name)
        case "da":
            sources.mark_active(name)
        case "i":
            return sources.advance_at_once(name, int(time))
        case "ii":
            sources.mark_idle(name)
            return sources.combine()
        case "ia":
            sources.mark_active(name)
            return sources.combine()
        case "P":
            return sources.combine()
        case _:
            raise AssertionError(step)
    return []


def split_spec(vector: dict[str, Any], topic: str, **watermark: Any) -> dict[str, Any]:
    """Return the spec of a job whose partitions are the splits of a vector."""
    bound, idle = vector["args"]["B"], vector["args"]["idle"]
    idleness = {} if idle == "0" else {"idle_after": f"{idle}ms"}
    return {
        "name": "vector",
        "source": {"topic": topic},
        "columns": {"k": "STRING", "at": "BIGINT"},
        "query": "SELECT k, COUNT(*) FROM t GROUP BY k",
        "watermark": {"delay": f"{bound}ms", **idleness, **watermark},
    }


@pytest.mark.parametrize("vector", vectors("SIM"))
def test_partitions_of_a_topic_give_what_flinks_splits_give(vector: dict[str, Any]) -> None:
    """Through the command's function, so that it is held to the vectors as well."""
    spec = split_spec(vector, "t")
    fed = (_step(step) for step, _ in vector["steps"])
    by_step: list[list[str]] = [[] for _ in vector["steps"]]

    def counted() -> Iterable[dict[str, Any]]:
        for number, step in enumerate(fed):
            position[0] = number
            yield step

    position = [0]
    for output in watermarks(spec, counted()):
        text = f"W{output['watermark']}" if "watermark" in output else output["status"].upper()
        if text != "ACTIVE":
            by_step[position[0]].append(text)
    assert by_step == [flink or [] for _, flink in vector["steps"]]


def _step(step: str) -> dict[str, Any]:
    what, *rest = step.split(":")
    numbers = [int(each.removeprefix("p")) for each in rest]
    match what:
        case "r":
            return {"add": numbers[0]}
        case "e":
            return {"event": numbers}
        case "t":
            return {"clock": numbers[0]}
        case "P":
            return {"periodic": True}
        case "pause":
            return {"pause": numbers[0]}
        case "unpause":
            return {"resume": numbers[0]}
        case _:
            raise AssertionError(step)


@pytest.mark.slow
@pytest.mark.parametrize("vector", vectors("SIM"))
def test_a_job_gives_what_flinks_splits_give(vector: dict[str, Any], by_hand: ByHand) -> None:
    """Through Kafka, Spark and Delta: each emission is an epoch, and the clock is moved by hand."""
    steps = [(*_step(step).items(), flink) for step, flink in vector["steps"]]
    own = {"time": {"column": "at"}, "emit_every": "1h"}  # so that only epochs emit
    spec = split_spec(vector, by_hand.topic, **own) | {
        "minibatch": {"size": 1_000, "latency": "1h"}
    }
    job = by_hand.job(spec, partitions=sum(kind == "add" for (kind, _), _ in steps), now_ms=0)
    clock = job.pipeline.clock
    clock.tick()
    waiting: list[tuple[int, bytes]] = []
    before: tuple[int | None, str] = (None, "active")
    for number, ((kind, value), flink) in enumerate(steps):
        match kind:
            case "event":
                data = [{"k": "a", "at": str(value[1])}]
                message = json.dumps({"type": "INSERT", "data": data}).encode()
                waiting.append((value[0], message))
            case "clock":
                assert job.now_ms is not None
                job.now_ms += value
            case "pause" | "resume":
                getattr(clock.time, kind)(by_hand.topic, value)
            case "periodic":
                row = job.epoch_of(waiting) if waiting else job.time_epoch()
                waiting.clear()
                given = [] if row.watermark == before[0] else [f"W{row.watermark}"]
                given += ["IDLE"] if (before[1], row.time.status) == ("active", "idle") else []
                before = row.watermark, row.time.status
                assert given == (flink or []), f"step {number}"
