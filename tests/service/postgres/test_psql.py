"""psql, as a person uses it: what is there, what it is like, and what is wrong."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator

import pytest

from tests.support.service.postgres import make_url, serve_items
from tests.support.service.served import Served

pytestmark = pytest.mark.skipif(
    shutil.which("psql") is None, reason="psql is not installed (Debian: postgresql-client)"
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serve_items(tmp_path_factory.mktemp("served")) as served:
        yield served


def run(served: Served, *commands: str, text: str = "") -> str:
    words = [word for command in commands for word in ("-c", command)]
    command = ["psql", "-X", "-A", "-q", make_url(served), *words]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60)
    return done.stdout + done.stderr


def test_rows_and_nulls(served: Served) -> None:
    found = run(served, "SELECT * FROM items ORDER BY name")
    assert found == "name|total|top\na|1|1\nb|2|2\n|4|4\n(3 rows)\n"
    assert "a|6|5" in run(served, "SELECT * FROM public.items AT EPOCH 1")
    assert "b|2|2" in run(served, 'SELECT items.* FROM "retally"."public"."items"')


def test_what_is_there(served: Served) -> None:
    for command in ("\\d", "\\dt"):
        assert "public|items|table|me" in run(served, command)
    described = run(served, "\\d items")
    assert 'Table "public.items"' in described
    assert "name|text|||" in described and "total|integer|||" in described
    assert "retally|me|UTF8" in run(served, "\\l")
    assert run(served, "\\dn").splitlines()[2] == "public|me"
    assert "items" in run(served, "SHOW TABLES")


@pytest.mark.parametrize("command", ["\\d+ items", "\\dt+", "\\du", "\\df", "\\dv", "\\di", "\\dT"])
def test_other_lists_are_empty_or_short_but_no_mistake(served: Served, command: str) -> None:
    assert "ERROR" not in run(served, command)


def test_a_mistake_has_its_place_in_the_text(served: Served) -> None:
    found = run(served, "SELECT 1; SELECT nam FROM items")
    line = "LINE 1: SELECT 1; SELECT nam FROM items"
    assert found.endswith(f"{line}\n{' ' * line.index('nam')}^\n")
    assert "Candidate bindings" in found
    assert "the jobs are items" in run(served, "SELECT * FROM itmes")


def test_nothing_can_be_changed(served: Served) -> None:
    for statement in (
        "INSERT INTO items VALUES ('x')",
        "CREATE TABLE t (a INT)",
        "DROP TABLE items",
    ):
        found = run(served, "\\set VERBOSITY verbose", statement)
        assert "25006" in found and "results can only be read, with SELECT" in found


def test_a_transaction_fails_until_its_end(served: Served) -> None:
    found = run(served, "BEGIN", "SELECT nope", "SELECT 1", "ROLLBACK", "SELECT 2 AS two")
    assert "refused until ROLLBACK" in found and "two\n2" in found


def test_rows_come_in_portions(served: Served) -> None:
    text = "\\set FETCH_COUNT 2\nSELECT * FROM range(5) AS r(n);\n"
    assert run(served, text=text).splitlines() == ["n", "0", "1", "2", "3", "4", "(5 rows)"]


def test_settings_are_kept_and_shown(served: Served) -> None:
    found = run(served, text="SET application_name TO 'mine';\nSHOW application_name;\n")
    assert found.splitlines()[1] == "mine"
    assert "the only encoding is UTF8" in run(served, "SET client_encoding TO 'LATIN1'")
