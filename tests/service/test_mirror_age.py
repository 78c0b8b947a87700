"""How old the mirror of a job is, in its document and on its page."""

from __future__ import annotations

from schemas.directory.documents import write_document
from schemas.directory.reports import MirrorReport
from schemas.types.moments import format_instant, now_ms
from tests.support.service.served import SPEC, Served, problem
from tests.support.service.tables import WatchedTable


def test_a_job_says_how_old_its_mirror_is(served: Served) -> None:
    watched = WatchedTable(served)
    watched.write({"a": (1, 5)})
    watched.seen()
    path = watched.table.place.mirror

    def see() -> tuple[object, str]:
        with served.client() as client:
            return client.get("/v1/jobs/items").json()["mirror"], client.get("/jobs/items").text

    document, page = see()
    assert document is None and "Mirror" not in page
    refreshed_at = now_ms() - 3_600_000
    write_document(path, MirrorReport(epoch=watched.newest, refreshed_at=refreshed_at))
    document, page = see()
    shown = {"epoch": watched.newest, "refreshed_at": format_instant(refreshed_at)}
    assert document == {**shown, "age_ms": 0} and "current" in page
    watched.write({"a": (1, 6)})
    watched.seen()
    document, page = see()
    assert isinstance(document, dict) and 3_600_000 <= document["age_ms"] < 3_700_000
    assert "Mirror" in page and "1 h old" in page


def test_a_job_without_an_epoch_has_a_page_and_says_that_it_has_none(served: Served) -> None:
    with served.client() as client:
        assert client.put("/v1/jobs/fresh", content=SPEC).status_code == 201
        assert client.get("/jobs/fresh").status_code == 200
        assert client.get("/v1/jobs/fresh").json()["mirror"] is None
        params = {"min_epoch": 0, "wait": 0.1}
        late = client.get("/v1/jobs/fresh/results", params=params)
        assert problem(late, 412, "epoch-not-reached")["detail"].endswith("there is no epoch yet")
