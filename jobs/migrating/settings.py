"""The settings of a session (SET 'key' = 'value') as sections of a spec."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from jobs.core.sql.dialect import Refusal
from jobs.migrating.problems import Note
from jobs.migrating.statements import Option
from jobs.migrating.yaml_text import Keys
from schemas.spec.duration import duration_text, parse_duration
from schemas.types.json_types import JsonObject

_MINI_BATCH = "table.exec.mini-batch."
# What has no effect on results: how Flink runs, keeps and shows them.
_WITHOUT_EFFECT = (
    "execution.checkpointing.", "execution.attached", "execution.target", "execution.shutdown",
    "state.", "rest.", "restart-strategy", "cluster.", "client.", "jobmanager.", "taskmanager.",
    "kubernetes.", "yarn.", "metrics.", "sql-client.", "table.optimizer.", "table.dml-sync",
    "table.plan.", "table.exec.resource.", "table.exec.async-", "table.exec.sink.",
    "table.exec.operator", "table.exec.uid.", "table.sql-dialect", "parallelism.default",
    "pipeline.object-reuse", "pipeline.operator-chaining", "pipeline.max-parallelism",
    "pipeline.jars", "pipeline.classpaths", "heartbeat.", "akka.", "env.", "security.",
    "table.exec.simplify-operator-name-enabled", "table.display.", "table.generated-code.",
)  # fmt: skip
# What changes results in Flink and has no counterpart: the value without an effect, the difference.
_IN_FLINK_ONLY = {
    "table.exec.sink.not-null-enforcer": (
        "ERROR",
        "a NULL for a NOT NULL column of the sink is written; Flink drops the row",
    ),
    "table.exec.sink.type-length-enforcer": (
        "IGNORE",
        "values keep their length; Flink trims or pads them to the sink's types",
    ),
    "table.exec.emit.late-fire.enabled": (
        "FALSE",
        "late rows change results in their epoch; Flink emits them after late-fire.delay",
    ),
}
_UTC = ("UTC", "GMT", "Z", "+00:00", "GMT+00:00", "UTC+00:00", "Etc/UTC", "Etc/GMT")


@dataclass(slots=True)
class Settings:
    """What the settings of a file mean for each of its jobs."""

    sections: dict[str, JsonObject] = field(default_factory=dict)
    notes: dict[Keys, list[Note]] = field(default_factory=dict)
    idle_after: str | None = None
    emit_every: str | None = None
    allowed_lateness: str | None = None
    early: bool = False
    duplicates: bool = False
    time_zone: Option | None = None  # if it is another one than UTC
    bundled: bool = False
    header: list[str] = field(default_factory=list)

    def note(self, keys: Keys, text: str, offset: int, *, differs: bool = False) -> None:
        self.notes.setdefault(keys, []).append(Note(text, differs, offset))


def read_settings(given: Mapping[str, Option]) -> Settings:
    """Return the settings; raise Refusal for one that has no counterpart."""
    found = Settings()
    for option in given.values():
        _read(option, given, found)
    return found


def _read(option: Option, given: Mapping[str, Option], found: Settings) -> None:
    key, value = option.key, option.value
    match key:
        case "table.exec.mini-batch.enabled":
            found.bundled = is_true(option)
            if found.bundled:
                found.sections["minibatch"] = _minibatch(given, found)
        case "table.exec.mini-batch.size" | "table.exec.mini-batch.allow-latency" | "pipeline.name":
            pass
        case "table.exec.source.idle-timeout":
            found.idle_after = duration_or_never(option)
        case "table.exec.state.ttl":
            _read_ttl(option, found)
        case "table.local-time-zone":
            found.time_zone = None if value in _UTC else option
        case "table.exec.source.cdc-events-duplicate":
            found.duplicates = is_true(option)
        case "table.exec.emit.allow-lateness":
            found.allowed_lateness = duration(option)
        case "table.exec.emit.early-fire.enabled":
            found.early = is_true(option)
        case "pipeline.auto-watermark-interval":
            if parse_flink_duration(option):
                found.emit_every = duration(option)
        case "execution.runtime-mode":
            if value.upper() == "BATCH":
                raise Refusal("a job follows a stream; there is no batch mode", option.offset)
        case "execution.savepoint.path" | "execution.state-recovery.path":
            text = "a job starts from its source: Flink's savepoints cannot be read"
            found.note(("source", "start"), text, option.offset)
        case _ if key in _IN_FLINK_ONLY:
            harmless, text = _IN_FLINK_ONLY[key]
            if value.upper() != harmless:
                section = "emit" if key.startswith("table.exec.emit.") else "query"
                found.note((section,), text, option.offset, differs=True)
        case _:
            if not key.startswith((*_WITHOUT_EFFECT, "table.exec.emit.")):
                found.header.append(f"not known here, and left out: {key}")


def _minibatch(given: Mapping[str, Option], found: Settings) -> JsonObject:
    section: JsonObject = {}
    size = given.get(_MINI_BATCH + "size")
    latency = given.get(_MINI_BATCH + "allow-latency")
    if size is not None:
        if not size.value.isdigit() or int(size.value) == 0:
            raise Refusal("table.exec.mini-batch.size must be greater than 0", size.offset)
        section["size"] = int(size.value)
        text = "records; a job that is behind takes up to max_rows"
        found.note(("minibatch", "size"), text, size.offset)
    if latency is not None:
        section["latency"] = duration(latency)
    return section


def _read_ttl(option: Option, found: Settings) -> None:
    if not parse_flink_duration(option):
        return
    found.sections["state"] = {"ttl": duration(option), "emit_expired": False}
    text = "a group expires as a whole; in Flink each value of a maximum expires apart from the sum"
    found.note(("state", "ttl"), text, option.offset, differs=True)


def is_true(option: Option) -> bool:
    if option.value.lower() not in ("true", "false"):
        raise Refusal(f"{option.key} must be true or false", option.offset)
    return option.value.lower() == "true"


def parse_flink_duration(option: Option) -> int:
    """Return milliseconds; a number without a unit has them already."""
    text = option.value.strip()
    try:
        return parse_duration(f"{text}ms" if text.isdigit() else text)
    except ValueError as error:
        raise Refusal(f"{option.key}: {error}", option.offset) from None


def duration(option: Option) -> str:
    return duration_text(parse_flink_duration(option))


def duration_or_never(option: Option) -> str:
    """Return a time of idleness; in Flink 0 is never."""
    milliseconds = parse_flink_duration(option)
    return duration_text(milliseconds) if milliseconds else "never"
