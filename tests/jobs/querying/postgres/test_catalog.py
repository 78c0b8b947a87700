"""What a statement of a PostgreSQL client becomes, and what it needs defined."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from jobs.querying.postgres.answer import answer_postgres
from jobs.querying.postgres.catalog import translate
from jobs.querying.postgres.types import frame_value
from schemas import limits
from schemas.process.postgres import PostgresCall, pack_message
from tests.support.tables.written_table import write_random_history


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("SELECT pg_catalog.version()", "SELECT            version()"),
        ('FROM "pg_catalog"."pg_class"', 'FROM              "pg_class"'),
        ("a OPERATOR(pg_catalog.~) 'b'", "a ~                      'b'"),
        ("a COLLATE pg_catalog.default", "a                           "),
        ("FROM information_schema.tables", "FROM info              .tables"),
        ('FROM "retally"."public"."x"', 'FROM           "public"."x"'),
        ("FROM retally.public.x", "FROM         public.x"),
        ("FROM retally.x", "FROM retally.x"),
        ("'items'::regclass", "retally_oid('items')"),
        ("json_build_object(a, 1)", "json_object      (a, 1)"),
        ("'pg_catalog.x' -- pg_catalog.x", "'pg_catalog.x' -- pg_catalog.x"),
        ('"a ""pg_catalog."', '"a ""pg_catalog."'),
        ("'it''s pg_catalog.x", "'it''s pg_catalog.x"),
    ],
)
def test_places_stay_where_they_are(written: str, read: str) -> None:
    found = translate(written, "me").sql
    assert found == read
    assert len(found) == len(written) or "regclass" in written


def test_parameters_are_counted_and_typed_by_their_casts() -> None:
    found = translate("SELECT $2::int, $1, ANY($3), '$9', $4::nope", "me")
    assert (found.parameters, found.types) == (4, {2: 23, 3: 1009})
    assert translate("SELECT $1, $2", "me", (23, 0)).sql == "SELECT ($1::int4), $2"


def test_only_what_is_named_is_defined() -> None:
    assert translate("SELECT name, total AS oid_2 FROM items", "me").definitions == []
    (version,) = translate("SELECT version()", "me").definitions
    assert version.startswith("CREATE MACRO version()")
    (user,) = translate("SELECT current_user", "o'me").definitions
    assert user.endswith("'o''me'")
    found = translate("SELECT relname FROM pg_catalog.pg_class", "me")
    assert found.lists_tables and len(found.definitions) < 10
    assert translate("SHOW TABLES", "me").definitions == []


GRAFANA = (
    """\
SELECT CASE WHEN quote_ident(table_schema) IN (
  SELECT CASE WHEN trim(s[i]) = '"$user"' THEN user ELSE trim(s[i]) END
  FROM generate_series(
    array_lower(string_to_array(current_setting('search_path'),','),1),
    array_upper(string_to_array(current_setting('search_path'),','),1)
  ) AS i, string_to_array(current_setting('search_path'),',') s
) THEN quote_ident(table_name)
ELSE quote_ident(table_schema) || '.' || quote_ident(table_name) END AS "table"
FROM information_schema.tables WHERE quote_ident(table_schema) NOT IN ('pg_catalog')
""",
    """\
SELECT quote_ident(column_name) AS "column", data_type AS "type" FROM information_schema.columns
WHERE CASE WHEN array_length(parse_ident('items'),1) = 2
  THEN quote_ident(table_schema) = (parse_ident('items'))[1]
    AND quote_ident(table_name) = (parse_ident('items'))[2]
  ELSE quote_ident(table_name) = 'items' END
""",
)


def test_the_query_builder_of_grafana_finds_tables_and_columns(tmp_path: Path) -> None:
    write_random_history(tmp_path)
    tables, columns = (
        b"".join(answer_postgres(tmp_path, sql, PostgresCall("me"))[1]) for sql in GRAFANA
    )
    assert tables.endswith(pack_message(b"D", b"\0\1\0\0\0\5items"))
    for name, kind in ((b"name", b"text"), (b"total", b"integer")):
        fields = b"\0\2" + frame_value(name) + frame_value(kind)
        assert pack_message(b"D", fields) in columns


@pytest.mark.parametrize(
    "piece", ["'", '"', "$1", "OPERATOR (", "COLLATE ", "pg_catalog ", "retally . ", "ANY ( ", "x "]
)
def test_a_hostile_statement_costs_one_pass(piece: str) -> None:
    text = piece * (limits.QUERY_CHARACTERS_MAX // len(piece))
    began = time.process_time()
    translate(text, "me")
    translate(piece.strip() + " " * limits.QUERY_CHARACTERS_MAX, "me")
    assert time.process_time() - began < 1
