"""The packaged client, and one that a generator makes of our OpenAPI, read the same."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

import retally
from tests.support.service.served import Served
from tests.support.service.tables import WatchedTable

Row = dict[str, Any]


class Reads(Protocol):
    """Reads of a client, as plain values."""

    def jobs(self) -> list[str]: ...
    def epoch(self, name: str) -> int: ...
    def results(self, name: str, **given: Any) -> tuple[int, list[Row]]: ...
    def group(self, name: str, key: str, **given: Any) -> tuple[int, Row]: ...
    def changes(self, name: str, since: int, count: int) -> list[tuple[str, int, Row]]: ...
    def history(self, name: str, key: str) -> list[str]: ...
    def explain(self, name: str, key: str) -> tuple[Row | None, int | None, bool]: ...
    def differing(self, name: str, first: int, last: int) -> list[Row]: ...
    def sql(self, statement: str) -> tuple[dict[str, int], list[Row]]: ...
    def watermarks(self, name: str) -> list[str]: ...
    def views(self, name: str) -> list[Any]: ...


class Unanswered(Exception):
    """The service refused a generated client; `refusal` has the status and the code."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.refusal = (status, code)


class Packaged:
    def __init__(self, address: str) -> None:
        self._client = retally.connect(address)

    def jobs(self) -> list[str]:
        return [job.name for job in self._client.jobs()]

    def epoch(self, name: str) -> int | None:
        return self._client.job(name).epoch

    def results(self, name: str, **given: Any) -> tuple[int | None, list[Row]]:
        found = self._client.results(name, **given)
        rows = found.rows()
        return found.epoch, rows

    def group(self, name: str, key: str, **given: Any) -> tuple[int, Row]:
        found = self._client.group(name, key, **given)
        return found.epoch, found.row

    def changes(self, name: str, since: int, count: int) -> list[tuple[str, int, Row]]:
        found: list[tuple[str, int, Row]] = []
        for event in self._client.follow(name, since):
            if isinstance(event, retally.Change):
                found.append((event.op, event.epoch, event.row))
            if len(found) == count:
                break
        return found

    def history(self, name: str, key: str) -> list[str]:
        return [change.op for change in self._client.history(name, key).changes]

    def explain(self, name: str, key: str) -> tuple[Row | None, int | None, bool]:
        found = self._client.explain(name, key)
        return found.row, found.row_count, found.history_complete

    def differing(self, name: str, first: int, last: int) -> list[Row]:
        return [each.key for each in self._client.diff(name, first, last)]

    def sql(self, statement: str) -> tuple[dict[str, int], list[Row]]:
        answer = self._client.sql(statement)
        rows = answer.rows()
        return answer.epochs, rows

    def watermarks(self, name: str) -> list[str]:
        return list(self._client.watermarks(name).held_by)

    def views(self, name: str) -> list[Any]:
        return list(self._client.views(name))


class Generated:
    """The functions of a generated package `generated`, by tag and operation."""

    def __init__(self, address: str) -> None:
        self._client = importlib.import_module("generated").Client(base_url=address)

    def _call(self, operation: str, *names: str, **given: Any) -> Any:
        module = importlib.import_module(f"generated.api.{operation}")
        response = module.sync_detailed(*names, client=self._client, **given)
        if response.status_code >= 400:
            assert response.parsed.status == response.status_code
            raise Unanswered(response.parsed.status, response.parsed.code)
        return response.parsed

    def jobs(self) -> list[str]:
        return [job.name for job in self._call("jobs.list_jobs").jobs]

    def epoch(self, name: str) -> int:
        return self._call("jobs.get_job", name).epoch  # type: ignore[no-any-return]

    def results(self, name: str, **given: Any) -> tuple[int, list[Row]]:
        found = self._call("results.list_results", name, **given)
        return found.epoch, [row.to_dict() for row in found.rows]

    def group(self, name: str, key: str, **given: Any) -> tuple[int, Row]:
        found = self._call("results.get_result", name, key, **given)
        return found.epoch, found.row.to_dict()

    def changes(self, name: str, since: int, count: int) -> list[tuple[str, int, Row]]:
        media = "application/json"
        found = self._call(
            "changes.read_changes", name, since=str(since), limit=count, accept=media
        )
        return [(str(each.op), each.epoch, each.row.to_dict()) for each in found.changes]

    def history(self, name: str, key: str) -> list[str]:
        found = self._call("results.get_history", name, key)
        return [str(change.op) for change in found.changes]

    def explain(self, name: str, key: str) -> tuple[Row | None, int | None, bool]:
        found = self._call("results.explain_result", name, key)
        return found.row.to_dict(), found.row_count, found.history_complete

    def differing(self, name: str, first: int, last: int) -> list[Row]:
        found = self._call("results.get_difference", name, from_=str(first), to=str(last))
        return [each.key.to_dict() for each in found.rows]

    def sql(self, statement: str) -> tuple[dict[str, int], list[Row]]:
        body = importlib.import_module("generated.models").AnswerSqlBody(statement)
        found = self._call("results.answer_sql", body=body)
        return found.epochs.to_dict(), [row.to_dict() for row in found.rows]

    def watermarks(self, name: str) -> list[str]:
        return list(self._call("time.get_watermarks", name).held_by)

    def views(self, name: str) -> list[Any]:
        return list(self._call("views.list_views", name).views)


@pytest.fixture(scope="module")
def watched(served: Served) -> WatchedTable:
    watched = WatchedTable(served)
    watched.write({"a": (1, 5), "b": (2,)}, {"a": (1,), None: (4,), "b": (2,)})
    watched.seen()
    return watched


def generate(address: str, folder: Path) -> None:
    """Write the package `generated`; every operation must be in it."""
    command = [sys.executable, "-m", "openapi_python_client", "generate", "--meta", "none"]
    places = ["--url", f"{address}/openapi.json", "--output-path", str(folder / "generated")]
    done = subprocess.run([*command, *places], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    # A spec may be YAML too, which generated clients leave out: they send JSON.
    output = done.stdout.replace("Unsupported content type application/yaml", "")
    assert not any(word in output for word in ("Unsupported", "Unable", "Cannot parse"))


_GENERATOR = importlib.util.find_spec("openapi_python_client")
_MISSING = "openapi_python_client is not installed; make setup brings it"
GENERATED = pytest.param(
    "generated", marks=[pytest.mark.slow, pytest.mark.skipif(_GENERATOR is None, reason=_MISSING)]
)


@pytest.fixture(scope="module", params=["packaged", GENERATED])
def client(
    request: pytest.FixtureRequest, watched: WatchedTable, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Reads]:
    address = watched.served.address
    if request.param == "packaged":
        yield Packaged(address)  # type: ignore[misc]
        return
    folder = tmp_path_factory.mktemp("client")
    generate(address, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield Generated(address)


def test_jobs(client: Reads) -> None:
    assert (client.jobs(), client.epoch("items")) == (["items"], 2)
    assert (client.watermarks("items"), client.views("items")) == ([], [])


def test_results(client: Reads) -> None:
    rows = [{"name": "a", "total": 1, "top": 1}, {"name": "b", "total": 2, "top": 2}]
    rows.append({"name": None, "total": 4, "top": 4})
    assert client.results("items", order="total") == (2, rows)
    assert client.results("items", order="-total", limit=1) == (2, rows[2:])
    assert client.results("items", where=["total>1", "total<4"]) == (2, rows[1:2])
    epoch, past = client.results("items", as_of="epoch:1", order="total")
    assert (epoch, [row["total"] for row in past]) == (1, [2, 6])


def test_groups(client: Reads) -> None:
    assert client.group("items", "a") == (2, {"name": "a", "total": 1, "top": 1})
    assert client.group("items", "a", as_of="epoch:1")[1]["total"] == 6
    row, count, complete = client.explain("items", "a")
    assert (row and row["top"], count, complete) == (1, 1, True)
    assert client.history("items", "a") == ["+I", "-U", "+U"]


def test_changes(client: Reads) -> None:
    first = client.changes("items", 0, 2)
    assert sorted((op, epoch, row["total"]) for op, epoch, row in first) == [
        ("+I", 1, 2),
        ("+I", 1, 6),
    ]
    later = client.changes("items", 1, 3)
    assert sorted((op, row["total"]) for op, _, row in later) == [("+I", 4), ("+U", 1), ("-U", 6)]
    assert sorted(client.differing("items", 1, 2), key=str) == [{"name": "a"}, {"name": None}]


def test_sql(client: Reads) -> None:
    epochs, rows = client.sql("SELECT name, total FROM items WHERE total > 1 ORDER BY total")
    assert (epochs, rows) == ({"items": 2}, [{"name": "b", "total": 2}, {"name": None, "total": 4}])
    assert client.sql("SELECT max(total) AS m FROM items AT EPOCH 1")[1] == [{"m": 6}]


def test_refusals(client: Reads) -> None:
    for read, refusal in (
        (lambda: client.epoch("nobody"), (404, "job-unknown")),
        (lambda: client.group("items", "nobody"), (404, "group-unknown")),
        (lambda: client.results("items", order="nope"), (422, "column-unknown")),
        (lambda: client.sql("DROP TABLE items"), (422, "sql-refused")),
        (lambda: client.changes("items", 99, 1), (404, "epoch-unknown")),
    ):
        assert find_refusal(read) == refusal


def find_refusal(read: Callable[[], object]) -> tuple[int, str] | None:
    try:
        read()
    except retally.Refused as error:
        return error.status, error.code
    except Unanswered as error:
        return error.refusal
    return None
