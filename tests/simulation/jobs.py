"""The jobs that are simulated: one with one query, and one with three views over the same rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from jobs.core.fold.program import Program
from jobs.core.formats.registry import MessageRules
from jobs.core.job.views import plans_of, reading_plan
from jobs.core.plan.tree import Plan
from jobs.core.rows.projection import row_projection
from jobs.core.values.change import Row
from jobs.core.values.order_key import encoder
from schemas.spec.file import load_spec
from schemas.spec.job import JobSpec
from tests.support.histories.products import CNT, DATABASE, NAME, NOTE, PRICE, REGION, TABLE, WEIGHT

Results = dict[Any, Any]
Truth = Callable[[Iterable[Any]], Results]  # a query over the live rows, by hand

_COMMON = {
    "name": "simulated",
    "source": {"topic": "product", "database": DATABASE, "table": TABLE},
    "columns": {
        "id": "BIGINT",
        "name": "STRING",
        "region": "STRING",
        "cnt": "INT",
        "price": "DECIMAL(10, 2)",
        "weight": "DOUBLE",
        "note": "STRING",
    },
    "max_bad_fraction": 1.0,
}
_NAMES = (
    "SELECT name, COUNT(*) AS n, COUNT(cnt) AS some, SUM(price) AS s, MAX(note) AS last_note, "
    "MIN(weight) AS light FROM product GROUP BY name"
)
_REGIONS = "SELECT region, COUNT(*) AS m, MAX(cnt) AS top FROM product GROUP BY region"
_WHOLE = "SELECT COUNT(*) AS rows_now, SUM(price) AS worth FROM product"
_BUCKETS = {"buckets": 3}


@dataclass(frozen=True, slots=True)
class SimulatedView:
    """One query: what folds it, and what it must give."""

    name: str
    plan: Plan
    program: Program
    topic: str
    truth: Truth
    pick: Callable[[Row], Row]  # the columns of the view in a decoded row

    @property
    def encode(self) -> Any:
        return encoder(tuple(column.type for column in self.plan.group))

    @property
    def projection(self) -> Any:
        found = row_projection(self.plan)
        assert found is not None
        return found


class SimulatedJob:
    """A spec with all that a run derives from it once."""

    def __init__(self, spec: JobSpec, truths: dict[str, Truth]) -> None:
        self.spec = spec
        self.plans = plans_of(spec)
        self.plan = reading_plan(self.plans)
        self.decode = (
            MessageRules("canal-json", DATABASE, TABLE)
            .decoder(self.plan.columns, self.plan.used)
            .decode
        )
        self.views = [self._view(name, truths[name]) for name in self.plans]

    def _view(self, name: str, truth: Truth) -> SimulatedView:
        plan, sink = self.plans[name], self.spec.view_specs[name].sink
        assert sink is not None
        names = [column.name for column in self.plan.used]
        at = tuple(names.index(column.name) for column in plan.used)
        return SimulatedView(
            name, plan, Program(plan), sink.topic, truth, lambda row: tuple(row[i] for i in at)
        )


def _there(rows: Iterable[Any], column: int) -> list[Any]:
    return [row[column] for row in rows if row[column] is not None]


def _group(live: Iterable[Any], *columns: int) -> dict[Any, list[Any]]:
    groups: dict[Any, list[Any]] = defaultdict(list)
    for row in live:
        groups[tuple(row[column] for column in columns)].append(row)
    return groups


def _by_name(live: Iterable[Any]) -> Results:
    return {
        key: (
            len(rows),
            len(_there(rows, CNT)),
            sum(prices) if (prices := _there(rows, PRICE)) else None,
            max(_there(rows, NOTE), default=None),
            min(_there(rows, WEIGHT), default=None),
        )
        for key, rows in _group(live, NAME).items()
    }


def _by_region(live: Iterable[Any]) -> Results:
    return {
        key: (len(rows), max(_there(rows, CNT), default=None))
        for key, rows in _group(live, REGION).items()
    }


def _of_all(live: Iterable[Any]) -> Results:
    return {
        key: (len(rows), sum(prices) if (prices := _there(rows, PRICE)) else None)
        for key, rows in _group(live).items()
    }


SINGLE = SimulatedJob(
    load_spec(
        {
            **_COMMON,
            "query": _NAMES,
            "sink": {"topic": "changes", "partitions": 2},
            "state": _BUCKETS,
        }
    ),
    {"": _by_name},
)
SEVERAL = SimulatedJob(
    load_spec(
        {
            **_COMMON,
            "views": {
                name: {"query": query, "sink": {"topic": topic, "partitions": 2}, "state": _BUCKETS}
                for name, query, topic in (
                    ("names", _NAMES, "changes"),
                    ("regions", _REGIONS, "changes-of-regions"),
                    ("whole", _WHOLE, "changes-of-all"),
                )
            },
        }
    ),
    {"names": _by_name, "regions": _by_region, "whole": _of_all},
)
