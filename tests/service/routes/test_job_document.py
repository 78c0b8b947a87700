"""The document of a job: a struct whose JSON has the same fields as ever, in each state."""

from __future__ import annotations

import msgspec

from schemas.documents.answers import Job, Jobs
from tests.support.service.served import SPEC, Served
from tests.support.service.tables import WatchedTable

_ALWAYS = """name revision desired actual since reason failure failures retry_at restart_needed
epoch watermark groups groups_below_zero lag rates mirror table"""
ALWAYS = {*_ALWAYS.split()}
OF_EPOCHS = {"committed_at", "moved", "source_repeats"}


def read(served: Served, path: str, kind: type[Job | Jobs]) -> dict[str, object]:
    """Return an answer, after a look that its struct has all of it."""
    with served.client() as client:
        answer = client.get(path)
    found: dict[str, object] = answer.json()
    assert msgspec.to_builtins(msgspec.json.decode(answer.content, type=kind)) == found
    return found


def test_a_job_has_the_fields_of_its_state_and_a_listing_leaves_out_specs(served: Served) -> None:
    watched = WatchedTable(served)
    with served.client() as client:
        put = client.put("/v1/jobs/fresh", content=SPEC).json()
    fresh = read(served, "/v1/jobs/fresh", Job)
    assert fresh.keys() == put.keys() == {*ALWAYS, "spec", "pending"}
    assert {name for name in fresh if fresh[name] is None} == {
        *("reason", "failure", "retry_at", "epoch", "watermark", "groups", "lag", "rates"),
        *("mirror", "table", "pending"),
    }
    shown = fresh["desired"], fresh["actual"], fresh["groups_below_zero"]
    assert shown == ("STOPPED", "CREATED", 0)
    watched.write({"a": (1, 5)})
    watched.seen()
    other = SPEC.replace("SUM(v)", "COUNT(v)")
    with served.client() as client:
        kept = client.put("/v1/jobs/items?replace=true", content=other).json()
    items = read(served, "/v1/jobs/items", Job)
    assert items.keys() == kept.keys() == ALWAYS | OF_EPOCHS | {"spec", "pending", "evolution"}
    assert (items["epoch"], items["groups"], items["actual"]) == (1, None, "AWAITING_APPROVAL")
    listed = read(served, "/v1/jobs", Jobs)["jobs"]
    assert isinstance(listed, list) and [each["name"] for each in listed] == ["fresh", "items"]
    assert [each.keys() for each in listed] == [ALWAYS, ALWAYS | OF_EPOCHS | {"pending"}]
