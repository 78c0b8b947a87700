"""Load aggregate classes that the operator has written and allowed, by name.

    functions: {GEO_MEAN: {class: shop.sums:GeoMean, returns: DOUBLE}}
        RETALLY_AGGREGATES=shop.sums:GeoMean,...     the operator's list; no other is loaded

What folds imports this module: drivers, their tasks, replays and audits. The service does not.
"""

from __future__ import annotations

from jobs.core.aggregates.operator_class import ClassLoading
from jobs.core.functions import AggregateFunction
from jobs.edge.process.generator_class import ClassRefused, load_allowed, require_allowed
from schemas.spec.job import JobSpec

ALLOWED = "RETALLY_AGGREGATES"


def load(path: str) -> AggregateFunction:
    """Return an object of a class; raise ClassRefused if it is not allowed or is no aggregate."""
    return load_allowed(path, ALLOWED, AggregateFunction)()


def require_classes(spec: JobSpec) -> None:
    """Raise ClassRefused if a spec names a class that the operator does not allow."""
    for strategy in spec.strategies.values():
        require_allowed(strategy)
    require_aggregates(spec)


def require_aggregates(spec: JobSpec) -> None:
    """Raise ClassRefused if a spec names an aggregate that the operator does not allow."""
    for name, each in (spec.functions or {}).items():
        own = type(load(each.path)).on_timer is not AggregateFunction.on_timer
        if own is not bool(each.timers):
            says = "has on_timer; add timers: true or timers: processing"
            if each.timers:
                says = "has no on_timer; remove timers"
            raise ClassRefused(f"functions.{name}: {each.path} {says}")


ClassLoading.load = staticmethod(load)
