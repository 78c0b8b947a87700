"""The base class of users' own aggregates, under the name that their code imports."""

from jobs.core.aggregates.operator_class import AggregateFunction, Timers

__all__ = ["AggregateFunction", "Timers"]
