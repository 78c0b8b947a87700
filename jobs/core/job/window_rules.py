"""Rules for the spec of a query with windows, and for the keys that need windows.

The watermark decides when a window is complete, so it must follow the column that the windows are
over. The time of a message is not possible: a retraction comes in another message, with another
time, than the row that it retracts.
"""

from __future__ import annotations

from jobs.core.fold.window_closing import Closing
from jobs.core.plan.tree import Plan, Window, WindowBound
from jobs.core.plan.walk import walk
from schemas.spec.job import JobSpec
from schemas.spec.watermark import Watermark

NEVER_IDLE = (
    "windows wait for every partition, so one that is empty or silent holds all of them; add "
    "watermark.idle_after, as in idle_after: 30s, or idle_after: never if they shall wait"
)
_ONLY_WITH_WINDOWS = "belongs to a query with windows, as GROUP BY TUMBLE(t, INTERVAL '1' MINUTE)"


def window_problems(spec: JobSpec, plan: Plan) -> dict[tuple[str, ...], str]:
    """Return the keys of a spec that do not fit the windows of its query, with the reasons."""
    window, lateness = plan.window, spec.allowed_lateness_ms
    if window is None:
        used = {("emit",): spec.emit == "final", ("allowed_lateness",): lateness is not None}
        return {key: f"{_ONLY_WITH_WINDOWS}; remove it" for key, is_used in used.items() if is_used}
    problems: dict[tuple[str, ...], str] = {}
    for path, section in spec.sections.items():
        problems |= _time_problems(path, section, window)
    if spec.dedupe is not None and closes(spec):
        problems["dedupe",] = (
            "windows that close must know which changes are late, and changes that dedupe derives "
            "from last images have no offset in the source; remove emit: final and "
            "allowed_lateness, or dedupe in a separate job before this one"
        )
    if window.function == "SESSION":
        if _computes_with_bounds(plan):
            problems["query",] = (
                "the bounds of a session change while it grows, so an expression over them would "
                "have another value for each row; select window_start and window_end as they are"
            )
        if spec.minibatch.clock == "event":
            problems["minibatch", "clock"] = (
                "sessions grow, so each bundle would emit them and retract them; use emit: final "
                "to emit each session once, and remove clock"
            )
        if spec.state.ttl_ms and not closes(spec):
            problems["state", "ttl"] = (
                "a session ends when the watermark has passed it; use allowed_lateness, and "
                "remove ttl"
            )
    if spec.state.ttl_ms and closes(spec):
        problems["state", "ttl"] = (
            "the groups of these windows end when the watermark has passed them, and must not "
            "expire before; remove ttl"
        )
    return problems


def _computes_with_bounds(plan: Plan) -> bool:
    """Return whether a row's expression other than a key of the group has a bound of the window."""
    keys = [each.expression for each in plan.group if not isinstance(each.expression, WindowBound)]
    # A session's state keeps the instants of its rows, as an argument that no aggregate has.
    own = plan.instants_argument
    if any(each.argument == own for each in plan.aggregates):
        return True
    read = [each.expression for index, each in enumerate(plan.arguments) if index != own]
    return any(isinstance(part, WindowBound) for each in (*keys, *read) for part in walk(each))


def window_notes(spec: JobSpec) -> dict[tuple[str, ...], str]:
    """Return the keys of a valid spec that may surprise, with the reasons."""
    if spec.emit != "final" or all(map(_moves_on, spec.strategies.values())):
        return {}
    return {("emit",): NEVER_IDLE}


def closes(spec: JobSpec) -> bool:
    """Return whether windows close: then their groups' state is deleted, and new rows are late."""
    return spec.emit == "final" or spec.allowed_lateness_ms is not None


def closing_of(spec: JobSpec, plan: Plan) -> Closing | None:
    """Return when the windows of a job complete and close; None if they never do."""
    if not closes(spec):
        return None
    lateness_ms = spec.allowed_lateness_ms or 0
    return Closing.of(plan, final=spec.emit == "final", lateness_ms=lateness_ms)


def _moves_on(watermark: Watermark) -> bool:
    """Return whether a watermark has a rule for partitions without rows."""
    by_clock = watermark.generator in ("lag", "automatic")
    return by_clock or watermark.idle_after_ms is not None or watermark.follows is not None


def _time_problems(
    path: tuple[str, ...], section: Watermark, window: Window
) -> dict[tuple[str, ...], str]:
    if section.follows:
        return {}
    time, name = section.time, window.time.name
    hint = f"the windows of the query are over `{name}`: write time: {{column: {name}}}"
    if isinstance(time, str):
        reason = (
            f"{time} is the time of a message, and a retraction comes in another message than the "
            f"row that it retracts, so it could fall into another window; {hint}"
        )
        return {(*path, "time"): reason}
    if time.column is not None and time.column != name:
        reason = f"a watermark of `{time.column}` does not show when a window is complete; {hint}"
        return {(*path, "time", "column"): reason}
    return {}
