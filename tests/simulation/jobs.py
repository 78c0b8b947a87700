"""The jobs that are simulated: one query, three views, and joins of two and of three topics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobs.core.fold.program import Program
from jobs.core.formats.registry import MessageRules
from jobs.core.job.views import JobInputs, plans_of, reading_plan
from jobs.core.plan.tree import Column, Plan
from jobs.core.rows.consolidate import Consolidation
from jobs.core.rows.projection import row_projection
from jobs.core.values.change import Row
from jobs.core.values.order_key import encoder
from schemas.spec.file import load_spec
from schemas.spec.job import JobSpec
from tests.support.histories.products import (
    CNT,
    COLUMNS,
    DATABASE,
    ID,
    NAME,
    NOTE,
    PRICE,
    REGION,
    TABLE,
    WEIGHT,
)

Results = dict[Any, Any]
Live = Mapping[str, Sequence[Any]]  # the live rows of each topic
Truth = Callable[[Live], Results]  # a query over them, by hand
Weighted = tuple[Any, Any, int, int]  # key, arguments, position, weight

_COMMON = {
    "name": "simulated",
    "source": {"topic": "product", "database": DATABASE, "table": TABLE},
    "columns": COLUMNS,
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

    @property
    def encode(self) -> Any:
        return encoder(tuple(column.type for column in self.plan.group))


@dataclass(frozen=True, slots=True)
class SimulatedReader:
    """Who reads the rows of a source or of a join: a view, or a side of a join."""

    number: int
    pick: Callable[[Row], Row]  # of a row the columns that it reads
    project: Any  # these to key and arguments

    @classmethod
    def of(cls, number: int, plan: Plan, columns: Sequence[Column]) -> SimulatedReader:
        at = tuple(columns.index(column) for column in plan.used)
        project = row_projection(plan)
        assert project is not None
        return cls(number, lambda row: tuple(row[i] for i in at), project)

    def consolidated(self, ordinal: int, changes: Iterable[tuple[int, Row]]) -> list[Weighted]:
        """Weighted rows as this reader takes them, each once."""
        consolidation = Consolidation(ordinal)
        consolidation.add([(weight, self.pick(row)) for weight, row in changes])
        rows = zip(*consolidation.consolidate(), strict=True)
        return [(*self.project(row), position, weight) for row, position, weight in rows]


class SimulatedJob:
    """A spec with all that a run derives from it once."""

    def __init__(
        self, spec: JobSpec, truths: dict[str, Truth], publishers: Sequence[int] = (1,)
    ) -> None:
        self.spec = spec
        self.publishers = publishers  # of which each start has another number
        self.plans = plans_of(spec)
        self.plan = reading_plan(self.plans)
        inputs = JobInputs.of(spec, self.plans)
        self.states = (*self.plans, *inputs.states)  # names of parts of the table, by number
        rules = MessageRules("canal-json", DATABASE, TABLE)
        self.decoders = {
            name: rules.decoder(plan.columns, plan.used).decode
            for name, plan in inputs.sources.items()
        }
        self.readers = {
            name: [
                SimulatedReader.of(self.states.index(each.name), each.plan, plan.used)
                for each in inputs.readers[name]
            ]
            for name, plan in inputs.sources.items()
        }
        self.views = [self._view(name, truths[name]) for name in self.plans]

    def _view(self, name: str, truth: Truth) -> SimulatedView:
        plan, sink = self.plans[name], self.spec.view_specs[name].sink
        assert sink is not None
        return SimulatedView(name, plan, Program(plan), sink.topic, truth)


def _there(rows: Iterable[Any], column: int) -> list[Any]:
    return [row[column] for row in rows if row[column] is not None]


def _group(live: Iterable[Any], *columns: int) -> dict[Any, list[Any]]:
    groups: dict[Any, list[Any]] = defaultdict(list)
    for row in live:
        groups[tuple(row[column] for column in columns)].append(row)
    return groups


def _by_name(live: Live) -> Results:
    return {
        key: (
            len(rows),
            len(_there(rows, CNT)),
            sum(prices) if (prices := _there(rows, PRICE)) else None,
            max(_there(rows, NOTE), default=None),
            min(_there(rows, WEIGHT), default=None),
        )
        for key, rows in _group(live["product"], NAME).items()
    }


def _by_region(live: Live) -> Results:
    return {
        key: (len(rows), max(_there(rows, CNT), default=None))
        for key, rows in _group(live["product"], REGION).items()
    }


def _of_all(live: Live) -> Results:
    return {
        key: (len(rows), sum(prices) if (prices := _there(rows, PRICE)) else None)
        for key, rows in _group(live["product"]).items()
    }


def _views(**queries: str) -> dict[str, Any]:
    """Views by name, of which the first one has the topic of a job with one query."""
    topics = ("changes", *(f"changes-of-{name}" for name in list(queries)[1:]))
    return {
        name: {"query": query, "sink": {"topic": topic, "partitions": 2}, "state": _BUCKETS}
        for (name, query), topic in zip(queries.items(), topics, strict=True)
    }


_SINGLE, _SHARED = (
    load_spec(
        {
            **_COMMON,
            "query": _NAMES,
            "sink": {"topic": "changes", "partitions": partitions},
            "state": _BUCKETS,
        }
    )
    for partitions in (2, 3)
)
SINGLE = SimulatedJob(_SINGLE, {"": _by_name})
SHARED = SimulatedJob(_SHARED, {"": _by_name}, publishers=(1, 2, 3))
SEVERAL = SimulatedJob(
    load_spec({**_COMMON, "views": _views(names=_NAMES, regions=_REGIONS, whole=_WHOLE)}),
    {"names": _by_name, "regions": _by_region, "whole": _of_all},
)


# --- joins ----------------------------------------------------------------------------------------

_NOTHING = (None,) * len(COLUMNS)
_MATCHED = (
    "SELECT s.region, COUNT(*) AS n, SUM(p.price) AS total, MAX(p.note) AS last_note "
    "FROM product AS p JOIN stock AS s ON p.name = s.name GROUP BY s.region"
)
_KEPT = (
    "SELECT p.region, COUNT(*) AS m, COUNT(s.id) AS matched "
    "FROM product AS p LEFT JOIN stock AS s ON p.cnt = s.cnt GROUP BY p.region"
)
_CHAIN = (
    "SELECT t.region, COUNT(*) AS n, SUM(p.price) AS total FROM product AS p "
    "JOIN stock AS s ON p.name = s.name LEFT JOIN sale AS t ON s.cnt = t.cnt GROUP BY t.region"
)
_UNSOLD = (
    "SELECT p.region, COUNT(*) AS m FROM product AS p "
    "WHERE NOT EXISTS (SELECT 1 FROM sale AS t WHERE t.name = p.name) GROUP BY p.region"
)
_ALONE = "SELECT name, COUNT(*) AS o FROM stock GROUP BY name"


def _join(
    lefts: Iterable[Any], rights: Iterable[Any], left: int, right: int, *, keep: bool = False
) -> list[Any]:
    """Pairs of rows, one after the other in one row; `keep`: also left rows without a match."""
    found, by_key = [], _group(rights, right)
    for row in lefts:
        matches = [] if row[left] is None else by_key.get((row[left],), [])
        found += [row + match for match in matches or ([_NOTHING] if keep else [])]
    return found


def _matched(live: Live) -> Results:
    rows = _join(live["product"], live["stock"], NAME, NAME)
    return {
        key: (
            len(found),
            sum(prices) if (prices := _there(found, PRICE)) else None,
            max(_there(found, NOTE), default=None),
        )
        for key, found in _group(rows, len(COLUMNS) + REGION).items()
    }


def _kept(live: Live) -> Results:
    rows = _join(live["product"], live["stock"], CNT, CNT, keep=True)
    return {
        key: (len(found), len(_there(found, len(COLUMNS) + ID)))
        for key, found in _group(rows, REGION).items()
    }


def _chain(live: Live) -> Results:
    both = _join(live["product"], live["stock"], NAME, NAME)
    rows = _join(both, live["sale"], len(COLUMNS) + CNT, CNT, keep=True)
    return {
        key: (len(found), sum(prices) if (prices := _there(found, PRICE)) else None)
        for key, found in _group(rows, 2 * len(COLUMNS) + REGION).items()
    }


def _unsold(live: Live) -> Results:
    sold = set(_there(live["sale"], NAME))
    rows = [row for row in live["product"] if row[NAME] not in sold]
    return {key: (len(found),) for key, found in _group(rows, REGION).items()}


def _alone(live: Live) -> Results:
    return {key: (len(found),) for key, found in _group(live["stock"], NAME).items()}


def _sources(*topics: str) -> dict[str, Any]:
    place = {"database": DATABASE, "table": TABLE, "columns": COLUMNS}
    return {topic: {"topic": topic, **place} for topic in topics}


_JOINED = {"name": "simulated", "max_bad_fraction": 1.0}
TWO_SOURCES = SimulatedJob(
    load_spec(
        {
            **_JOINED,
            "sources": _sources("product", "stock"),
            "views": _views(matched=_MATCHED, kept=_KEPT),
        }
    ),
    {"matched": _matched, "kept": _kept},
)
THREE_SOURCES = SimulatedJob(
    load_spec(
        {
            **_JOINED,
            "sources": _sources("product", "stock", "sale"),
            "views": _views(chain=_CHAIN, unsold=_UNSOLD, alone=_ALONE),
        }
    ),
    {"chain": _chain, "unsold": _unsold, "alone": _alone},
)
