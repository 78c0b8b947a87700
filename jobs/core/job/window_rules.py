"""What a spec must say where its query has windows, and may only say there.

A window is complete when the watermark says so, so the watermark has to follow the very column
that the windows are over. The time of a message will not do: the message of a retraction is not
the message of the row that it takes back.
"""

from __future__ import annotations

from jobs.core.fold.window_closing import Closing
from jobs.core.plan.tree import Plan, Window
from schemas.spec.job import JobSpec, TimeColumn

_ONLY_WITH_WINDOWS = "belongs to a query with windows, as GROUP BY TUMBLE(t, INTERVAL '1' MINUTE)"


def window_problems(spec: JobSpec, plan: Plan) -> dict[tuple[str, ...], str]:
    """The keys of a spec that do not go with the windows of its query, each with the reason."""
    window, lateness = plan.window, spec.allowed_lateness_ms
    if window is None:
        asked = {("emit",): spec.emit == "final", ("allowed_lateness",): lateness is not None}
        return {
            key: f"{_ONLY_WITH_WINDOWS}; remove it" for key, is_asked in asked.items() if is_asked
        }
    problems = _time_problems(spec, window)
    if spec.dedupe is not None and closes(spec):
        problems["dedupe",] = (
            "windows that close need to know which changes came late, and those that follow from "
            "last images have no place in the source; let windows stay open, or dedupe in a job of "
            "its own before this one"
        )
    if window.function == "SESSION":
        if spec.minibatch.clock == "event":
            problems["minibatch", "clock"] = (
                "sessions grow, so each bundle would tell them and take them back; say emit: final "
                "to be told of each once, and leave clock out"
            )
        if spec.state.ttl_ms and not closes(spec):
            problems["state", "ttl"] = (
                "a session ends when the watermark has passed it; say allowed_lateness, and "
                "remove it"
            )
    if spec.state.ttl_ms and closes(spec):
        problems["state", "ttl"] = (
            "the groups of these windows end when the watermark has passed them, and may not "
            "expire before; remove it"
        )
    return problems


def closes(spec: JobSpec) -> bool:
    """Whether a window closes some time: its groups' state goes then, and its rows are late."""
    return spec.emit == "final" or spec.allowed_lateness_ms is not None


def closing_of(spec: JobSpec, plan: Plan) -> Closing | None:
    """When the windows of a job are complete, and when they close; None where they never do."""
    if not closes(spec):
        return None
    lateness_ms = spec.allowed_lateness_ms or 0
    return Closing.of(plan, final=spec.emit == "final", lateness_ms=lateness_ms)


def _time_problems(spec: JobSpec, window: Window) -> dict[tuple[str, ...], str]:
    time, name = spec.watermark.time, window.time.name
    hint = f"the windows of the query are over `{name}`: write time: {{column: {name}}}"
    if not isinstance(time, TimeColumn):
        reason = (
            f"{time} is the time of a message, and a retraction comes in another message than the "
            f"row that it takes back, so it would hit another window; {hint}"
        )
        return {("watermark", "time"): reason}
    if time.column != name:
        reason = f"a watermark of `{time.column}` does not say when a window is complete; {hint}"
        return {("watermark", "time", "column"): reason}
    return {}
