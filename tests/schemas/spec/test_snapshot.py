"""The section `snapshot` of a source, and the database that it names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from schemas.spec.connections import (
    UnknownConnectionError,
    UnusableFileError,
    jdbc_options,
    load_connections,
)
from schemas.spec.file import SpecError, load_spec

JDBC = {"connection": "shop", "table": "shop.orders", "key": "id"}
KEYED = {"primary_key": ["id"], "dedupe": "pk"}


def document_of(snapshot: Any, source: Any = None, **keys: Any) -> dict[str, Any]:
    rows = {"columns": {"id": "BIGINT", "name": "STRING"}, **KEYED, **keys}
    sources = {"topic": "orders", "snapshot": snapshot, **(source or {})}
    return {"name": "a", "source": sources, "query": "SELECT COUNT(*) AS n FROM t", **rows}


def problems_of(document: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(SpecError) as caught:
        load_spec(document)
    return {each.path: each.reason for each in caught.value.problems}


def test_a_topic_begins_at_its_end_behind_the_rows_of_a_database_only() -> None:
    spec = load_spec(document_of({"jdbc": JDBC}))
    assert spec.source.start == "latest"
    assert load_spec(spec.document()) == spec
    assert load_spec(document_of({"jdbc": JDBC}, {"start": "earliest"})).source.start == "earliest"
    files = load_spec(document_of({"delta": "/exports/orders", "jdbc": None}))
    assert (files.source.start, files.source.snapshot is not None) == ("earliest", True)


@pytest.mark.parametrize(
    "document, path, reason",
    [
        (document_of({"csv": "/x"}, dedupe=None), "dedupe", "is required by source.snapshot"),
        (document_of({}), "source.snapshot.csv", "give exactly one of"),
        (document_of({"csv": "/x", "jdbc": JDBC}), "source.snapshot.csv", "give exactly one of"),
        (document_of({"csv": "/x/../y"}), "source.snapshot.csv", "must not contain '..'"),
        (document_of({"csv": "/x/{y,z}"}), "source.snapshot.csv", "or any of"),
        (document_of({"parquet": "/x/\\../y"}), "source.snapshot.parquet", "or any of"),
        (document_of({"iceberg": "/x"}), "source.snapshot", "write the rows as parquet"),
        (
            document_of({"jdbc": {**JDBC, "table": "(SELECT 1) t"}}),
            "source.snapshot.jdbc.table",
            "is not the name of a table",
        ),
        (
            document_of({"jdbc": {**JDBC, "key": "id; --"}}),
            "source.snapshot.jdbc.key",
            "is not a column name",
        ),
        (
            document_of({"csv": "/x"}, primary_key=["__table", "id"]),
            "primary_key.0",
            "is not one of columns",
        ),
    ],
)
def test_what_does_not_fit_is_named(document: dict[str, Any], path: str, reason: str) -> None:
    assert reason in problems_of(document)[path]


def test_a_database_has_its_password_in_the_connections_file(tmp_path: Path) -> None:
    file = tmp_path / "connections.yaml"
    file.write_text(
        """
shop:
  jdbc: jdbc:mariadb://db:3306/shop
  login: {username: reader, password: secret-word}
warehouse: {jdbc: "jdbc:postgresql://users-db/users"}
odd: {jdbc: "jdbc:odd://dw/shop"}
"""
    )
    file.chmod(0o600)
    found = load_connections(file, None, {})
    shop = jdbc_options(found.lookup_database("shop"))
    assert shop["url"] == "jdbc:mysql://db:3306/shop?permitMysqlScheme=true"
    assert (shop["user"], shop["password"]) == ("reader", "secret-word")
    assert shop["driver"] == "org.mariadb.jdbc.Driver"
    assert "secret-word" not in repr(found)
    assert "user" not in jdbc_options(found.lookup_database("warehouse"))
    with pytest.raises(UnusableFileError, match="needs driver"):
        jdbc_options(found.lookup_database("odd"))
    with pytest.raises(UnknownConnectionError, match="no database is called 'default'"):
        found.lookup_database("default")


@pytest.mark.parametrize(
    "url",
    [
        "mysql://db/shop",
        "jdbc:mysql://db/shop?password=x",
        "jdbc:mysql://db/shop?ssl=true&user=x",
        "jdbc:sqlserver://db;PWD=x",
        "jdbc:mysql://reader:x@db/shop",
        "jdbc:oracle:thin:scott/tiger@//db/shop",
        "jdbc:mysql://db/ shop",
    ],
)
def test_an_address_with_a_password_is_refused_and_not_quoted(tmp_path: Path, url: str) -> None:
    file = tmp_path / "connections.yaml"
    file.write_text(f'shop: {{jdbc: "{url}"}}\n')
    file.chmod(0o600)
    with pytest.raises(SpecError) as caught:
        load_connections(file, None, {})
    assert "must be like jdbc:mysql://db:3306/shop" in str(caught.value)
    assert url not in str(caught.value)
