"""Compare the views of two specs of a job: which stay, change, come and go.

    old spec, new spec ──► compare_specs ─┬─ a view with the same plan      stays as it is
                                          ├─ another plan under its name    changes: compare_jobs
                                          ├─ a new name                     state of another view?
                                          └─ a name that is gone            leaves

A new view may start with the state of another view if this has the same rows and groups, and has
refused no message. Otherwise the topic is read again. A job with one query has one view, "".
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from jobs.core.job.evolution import (
    Evolution,
    Planned,
    compare_jobs,
    describe_other_topics,
    refuses_less,
)
from jobs.core.job.views import JobInputs, plans_of
from jobs.core.job.window_rules import closes
from jobs.core.plan.tree import Plan
from schemas.spec.job import JobSpec
from schemas.table.epoch import EpochRow

LACKING_ROWS = (
    "the table keeps last images of rows, or rows of joins, with the columns of the old queries"
)
OTHER_PLAN = "retally now gives the old query another plan than that of the state"
FAILING_ROWS = (
    "an expression fails on joined rows, which count for nothing, and another query may not fail "
    "on them"
)


@dataclass(frozen=True, slots=True)
class ViewEvolution:
    """What a spec does to one view; "" is the job's own query."""

    name: str
    source: str | None  # the view whose state and time it may continue; None: only the topic
    new: bool  # it had no results until now
    found: Evolution

    @property
    def begins(self) -> bool:
        """Whether the history of the view starts with the epoch of the change."""
        return self.new or self.found.begins


@dataclass(frozen=True, slots=True)
class JobEvolution:
    """What a spec does to a job."""

    changed: tuple[ViewEvolution, ...]  # and new ones
    removed: tuple[str, ...] = ()  # views
    mismatches: tuple[str, ...] = ()  # why it is another job
    kept: tuple[ViewEvolution, ...] = ()
    shares_rows: bool = False  # the table keeps last images or sides of joins, for all views
    lacking: tuple[str, ...] = ()  # why these are not enough
    other_topics: str = ""  # why no state is of use; "" with the same sources and topics

    @property
    def same(self) -> bool:
        """Whether the job has these queries already."""
        return not (self.changed or self.removed)

    @property
    def replayed(self) -> tuple[ViewEvolution, ...]:
        """The views that a replay computes again: the changed ones, or all if no query changed.

        Views that share rows must have refused the same messages, so all are computed again. Of
        other topics no view has the rows."""
        whole = self.same or self.shares_rows or self.other_topics
        return (*self.changed, *self.kept) if whole else self.changed

    @property
    def continues(self) -> bool:
        """Whether the job can continue with its state."""
        return not self.reasons and not self.fixed

    @property
    def replays(self) -> bool:
        """Whether reading the topic again can give what the state cannot."""
        return not self.fixed

    @property
    def begins(self) -> bool:
        """Whether a view gets other columns of groups, so that its history starts anew."""
        return any(view.found.begins for view in self.changed)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the state is not enough."""
        if self.other_topics:
            return (self.other_topics,)
        return self._name_views("reasons") or self.lacking

    @property
    def fixed(self) -> tuple[str, ...]:
        """Why reading the topic again is not enough."""
        return (*self.mismatches, *self._name_views("fixed"))

    @property
    def added(self) -> tuple[str, ...]:
        """The new columns of results, as `view.column`, and the new views."""
        return tuple(
            name
            for view in self.changed
            for name in ([view.name] if view.new and view.name else _name_columns(view, "added"))
        )

    @property
    def dropped(self) -> tuple[str, ...]:
        """The removed columns, and the removed views."""
        columns = (_name_columns(view, "dropped") for view in self.changed if not view.new)
        views = (name or "the query" for name in self.removed)
        return (*(name for names in columns for name in names), *views)

    def _name_views(self, attribute: str) -> tuple[str, ...]:
        return tuple(
            f"view {view.name!r}: {text}" if view.name else text
            for view in self.changed
            for text in getattr(view.found, attribute)
        )


def _name_columns(view: ViewEvolution, attribute: str) -> list[str]:
    prefix = f"{view.name}." if view.name else ""
    return [prefix + column for column in getattr(view.found, attribute)]


def compare_specs(
    old: JobSpec, new: JobSpec, newest: EpochRow, refusing: Collection[str] = ()
) -> JobEvolution:
    """Compare a job's spec with a changed one; `newest` is the newest epoch with all views.

    `refusing` names the views that have refused a message, which another view may take.
    """
    before, after = old.view_specs, new.view_specs
    old_plans, new_plans, known = plans_of(old), plans_of(new), newest.plans
    mismatches: list[str] = []
    changed, kept = list[ViewEvolution](), list[ViewEvolution]()
    for name, plan in new_plans.items():
        planned = Planned(after[name], plan)
        if name not in before:
            sources = {
                each: Planned(before[each], old_plans[each])
                for each in before
                if each not in refusing and known.get(each) == old_plans[each].fingerprint
            }
            changed.append(_compare_new(name, planned, sources, newest))
            continue
        of_old = Planned(before[name], old_plans[name])
        found = compare_jobs(of_old, planned, newest.of_view(name))
        if name in refusing and refuses_less(of_old, planned):
            reason = "the old query has refused messages that the new one may take"
            found = replace(found, reasons=(*found.reasons, reason))
        if known.get(name) not in (plan.fingerprint, of_old.plan.fingerprint):
            found = replace(found, reasons=(*found.reasons, OTHER_PLAN))
        if known.get(name) != plan.fingerprint:
            changed.append(ViewEvolution(name, name, False, found))
        else:
            kept.append(ViewEvolution(name, name, False, found))
            mismatches += (f"view {name!r}: {text}" if name else text for text in found.fixed)
    mismatches += find_taken_topics(before, after)
    removed = tuple(name for name in before if name not in after)
    lacking = [LACKING_ROWS] if lacks_rows(old, new) else []
    if newest.counts.failing_rows and (changed or removed):
        lacking.append(FAILING_ROWS)
    return JobEvolution(
        tuple(changed),
        removed,
        tuple(mismatches),
        tuple(kept),
        bool(JobInputs.of(new, new_plans).states),
        tuple(lacking),
        describe_other_topics(old, new),
    )


def lacks_rows(old: JobSpec, new: JobSpec) -> bool:
    """Return whether joins, or last images of rows, need what the table does not keep."""
    kept, needed = (
        {
            name: _describe_rows(plan)
            for name, plan in JobInputs.of(spec, plans_of(spec)).states.items()
        }
        for spec in (old, new)
    )
    other_buckets = bool(needed) and old.state.buckets != new.state.buckets
    return other_buckets or any(kept.get(name) != rows for name, rows in needed.items())


def _describe_rows(plan: Plan) -> tuple[object, ...]:
    """Return what tells kept rows apart, whatever else their source has."""
    return plan.group, plan.arguments, plan.primary_key, frozenset(plan.image)


def find_taken_topics(before: Mapping[str, JobSpec], after: Mapping[str, JobSpec]) -> Iterator[str]:
    """Yield the topics that have the changelog of another view."""
    owners = {spec.sink.topic: name for name, spec in before.items() if spec.sink is not None}
    for name, spec in after.items():
        if spec.sink is not None and owners.get(spec.sink.topic, name) != name:
            owner = owners[spec.sink.topic]
            yield (
                f"topic {spec.sink.topic} has the changelog of "
                f"{f'view {owner!r}' if owner else 'the query'}; give "
                f"{f'views.{name}.' if name else ''}sink.topic another name"
            )


def _compare_new(
    name: str, planned: Planned, sources: Mapping[str, Planned], newest: EpochRow
) -> ViewEvolution:
    """Return how a new view begins: with the state of another view, or from the topic."""
    for source, known in sources.items():
        if closes(planned.spec) or not _has_same_rules(known.spec, planned.spec):
            continue  # windows that are closed have no state
        found = compare_jobs(known, planned, newest.of_view(source))
        if not found.reasons:
            begun = replace(found, added=_columns(planned.plan), dropped=(), fixed=(), begins=False)
            return ViewEvolution(name, source, True, begun)
    reason = "it is new, and the state of no other view answers it"
    return ViewEvolution(name, None, True, Evolution((), (reason,), _columns(planned.plan), ()))


def _columns(plan: Plan) -> tuple[str, ...]:
    return tuple(column for column, _ in plan.results)


def _has_same_rules(known: JobSpec, new: JobSpec) -> bool:
    """Return whether groups live as long in both, in the same buckets and with the same windows."""
    rules = ("state", "empty", "emit", "allowed_lateness_ms")
    return all(getattr(known, rule) == getattr(new, rule) for rule in rules)
