"""A spec that comes over HTTP names only what the operator has configured."""

from __future__ import annotations

import json

import pytest

from schemas.spec.connections import Connections, Database, load_connections
from schemas.spec.file import SpecError
from service.supervision.spec_body import read_spec


def test_a_snapshot_names_a_database_of_the_connections_file() -> None:
    place = {"connection": "shop", "table": "orders", "key": "id"}
    document = {
        "source": {"topic": "t", "snapshot": {"jdbc": place}},
        "columns": {"id": "BIGINT"},
        "primary_key": ["id"],
        "dedupe": "pk",
        "query": "SELECT COUNT(*) AS n FROM t",
    }
    body = json.dumps(document).encode()
    known = load_connections(None, None, {})
    with pytest.raises(SpecError) as refused:
        read_spec(body, "items", known)
    (problem,) = refused.value.problems
    assert problem.path == "source.snapshot.jdbc.connection"
    assert "no database is called 'shop'" in problem.reason
    databases = {"shop": Database("shop", "jdbc:mysql://db/shop")}
    checked = read_spec(body, "items", Connections(known.by_name, {}, databases))
    assert checked.spec.source.start == "latest"
