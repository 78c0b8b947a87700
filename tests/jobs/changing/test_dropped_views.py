"""A view that is dropped takes its mirror along, and nothing of another view."""

from __future__ import annotations

from pathlib import Path

from jobs.changing.evolve import evolve
from schemas.spec.file import load_spec
from schemas.types.sql_types import INT, STRING
from tests.support.tables.written_table import BUCKETS, WrittenTable

QUERY = "SELECT name, SUM(v) AS total, MAX(v) AS top FROM t GROUP BY name"


def test_a_dropped_view_takes_its_mirror_along(tmp_path: Path) -> None:
    table = WrittenTable(tmp_path, QUERY, {"name": STRING, "v": INT})
    table.epoch({("a",): (1,)})
    document = load_spec(table.place.spec).document()
    state = {"buckets": BUCKETS}
    means = {"query": "SELECT name, AVG(v) AS mean FROM t GROUP BY name", "state": state}
    least = {"query": "SELECT name, MIN(v) AS least FROM t GROUP BY name", "state": state}
    evolve(table.place, load_spec(document | {"views": {"means": means, "least": least}}))
    mirrors = {view: table.place.at_view(view).results for view in ("", "means", "least")}
    for mirror in mirrors.values():
        (mirror / "_delta_log").mkdir(parents=True)
    note = mirrors["least"].with_name("note.txt")
    note.write_text("of a user")

    def left() -> list[str]:
        return [view for view, mirror in mirrors.items() if mirror.exists()]

    dropped = load_spec(document | {"views": {"means": means}})
    evolve(table.place, dropped)
    assert left() == ["", "means"]
    assert note.exists()
    (mirrors["least"] / "_delta_log").mkdir(parents=True)
    assert evolve(table.place, dropped).row is None  # as after a kill between the two steps
    assert left() == ["", "means"]

    # Now the job's own query goes, and then all views but it.
    for key in ("query", "state"):
        del document[key]
    evolve(table.place, load_spec(document | {"views": {"means": means}}))
    assert left() == ["means"]
