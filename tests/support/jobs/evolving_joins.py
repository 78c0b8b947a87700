"""A job with joins whose queries and sources change, beside the same tables in DuckDB.

random changes of a, b, c ─► epochs ─► evolve ─► epochs ─► evolve --replay ─► epochs
"""

from __future__ import annotations

from typing import Any

from jobs.reading.files import live_files, open_table
from schemas.spec.job import JobSpec
from schemas.table.view_path import split_part
from tests.support.jobs.epochs_by_hand import of_view, spec_of
from tests.support.jobs.joined_tables import COLUMNS, JoinedTables

SUMS = "SELECT w, SUM(v) AS s, COUNT(*) AS n FROM a JOIN b ON a.k = b.k GROUP BY w"
MANY = "SELECT w, SUM(v) AS s FROM a JOIN b ON a.k = b.k GROUP BY w HAVING COUNT(*) > 2"
COUNTS = "SELECT w, COUNT(v) AS c FROM a JOIN b ON a.k = b.k GROUP BY w"
IDS = (
    "SELECT w, MAX(a.id) AS top, SUM(x) AS sx FROM a LEFT JOIN b ON a.k = b.k "
    "LEFT JOIN c ON c.k = b.id GROUP BY w"
)
ALONE = "SELECT x, COUNT(*) AS xs FROM c GROUP BY x"


class EvolvingJoins:
    """A job over tables whose rows are known, with last images."""

    def __init__(self, tables: JoinedTables) -> None:
        self.tables, self.job = tables, tables.job
        self.place = self.job.place.at_view("")
        self.sources: dict[str, Any] = {}  # that are new, or others than before

    def feed(self) -> None:
        self.tables.send(self.tables.change_by_id(20), by_id=True)
        self.job.epoch()

    def begin_table(self, topic: str, **keys: Any) -> None:
        """Read table c from another topic or offset from now on; the rows before do not count."""
        self.tables.live["c"], self.tables.topics["c"] = [], topic
        columns = COLUMNS["c"]
        self.sources["c"] = {"topic": topic, "columns": columns, "table": "c", **keys}

    def must_be_exact(self) -> None:
        assert self.tables.results() == self.tables.truth()

    def spec(self, **queries: str) -> JobSpec:
        """Return the spec with these views; "query" is the job's own."""
        views = {name: of_view(text) for name, text in queries.items()}
        sources = self.tables.document["sources"] | self.sources
        self.wanted = self.tables.document | {"views": views, "sources": sources}
        own = {**self.wanted, "views": {name: view for name, view in views.items() if name}}
        if "" in views:
            own |= views[""]
        if not own["views"]:
            own.pop("views")
        return spec_of(own, buckets=None)

    def go_on(self, spec: JobSpec) -> None:
        self.tables.document = self.wanted
        self.job.go_on(spec)
        self.must_be_exact()
        self.feed()
        self.must_be_exact()

    def kept_parts(self) -> set[str]:
        """The parts of the table that belong to no view."""
        files = live_files(open_table(self.place.table))
        owners = {split_part(file.part)[0] for file in files}
        return {name for name in owners if "_" in name}
