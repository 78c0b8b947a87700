"""Arrow is what the job's table holds: every type, NULL, numbers beyond 2^53, lists."""

from __future__ import annotations

import math
from datetime import date
from decimal import Decimal
from typing import Any

import httpx
import msgspec
import pyarrow as pa
import pytest

from jobs.reading.json_columns import safe_renderer
from schemas.types.arrow_types import arrow_type
from schemas.types.sql_types import DATE, DOUBLE, INT, Kind, SqlType
from service.answers.arrow import encode_results, make_column
from tests.support.service.served import Served
from tests.support.service.tables import WatchedTable

ARROW = {"Accept": "application/vnd.apache.arrow.stream"}


def rows(body: bytes) -> list[dict[str, Any]]:
    return pa.ipc.open_stream(body).read_all().to_pylist()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("kind", "value", "found"),
    [
        ("BIGINT", 2**63 - 1, 2**63 - 1),
        ("TINYINT", -7, -7),
        ("BOOLEAN", False, False),
        ("DECIMAL(38, 2)", -(10**37) - 1, Decimal(f"-{10**35}.01")),
        ("DATE", 19_000, date(2022, 1, 8)),
        ("TIMESTAMP(3)", 1_700_000_000_123_000, 1_700_000_000_123_000),
        ("TIMESTAMP_LTZ(6)", -1, -1),
        ("TIMESTAMP(9)", "2024-01-02 03:04:05.000000001", "2024-01-02 03:04:05.000000001"),
        ("TIME", "03:04:05", "03:04:05"),
        ("STRING", "Grüße\x00", "Grüße\x00"),
        ("BINARY", b"\x00\xff", b"\x00\xff"),
        ("DOUBLE", math.inf, math.inf),
        ("FLOAT", 1.5, 1.5),
    ],
)
def test_a_value_comes_back_from_its_json(kind: str, value: Any, found: Any) -> None:
    sql_type = SqlType.parse(kind)
    output = msgspec.json.decode(msgspec.json.encode(safe_renderer(sql_type)(value)))
    array = make_column([output, None], sql_type)
    assert array.type == arrow_type(sql_type)
    assert array[1].as_py() is None
    whole = array.cast(pa.int64()) if pa.types.is_timestamp(array.type) else array
    assert whole[0].as_py() == found


def test_lists_keep_their_nulls_and_their_items() -> None:
    of_dates = SqlType(Kind.ARRAY, items=(DATE,))
    array = make_column([["2022-01-08", None], None, []], of_dates)
    assert array.type == arrow_type(of_dates)
    assert array.to_pylist() == [[date(2022, 1, 8), None], None, []]


def test_a_page_without_rows_has_its_columns() -> None:
    table = pa.ipc.open_stream(encode_results({"n": INT, "x": DOUBLE}, [])).read_all()
    assert table.schema == pa.schema([("n", pa.int32()), ("x", pa.float64())])
    assert table.num_rows == 0


def test_results_and_changes_are_served_as_arrow(served: Served, client: httpx.Client) -> None:
    watched = WatchedTable(served)
    watched.write({"a": (1, 5), None: (2,)}, {"a": (1,)})
    watched.seen()
    answer = client.get("/v1/jobs/items/results", headers=ARROW)
    assert answer.headers["content-type"] == ARROW["Accept"]
    assert answer.headers["x-epoch"] == "2"
    assert rows(answer.content) == [{"name": "a", "total": 1, "top": 1}]
    page = client.get("/v1/jobs/items/results?as_of=epoch:1&limit=1", headers=ARROW)
    assert rows(page.content) == [{"name": None, "total": 2, "top": 2}]
    following = page.headers["link"].split(";")[0].strip("<>")
    assert rows(client.get(following, headers=ARROW).content)[0]["name"] == "a"

    changes: list[dict[str, Any]] = []
    since = "0"
    while True:
        parameters: dict[str, Any] = {"since": since, "limit": 1}
        answer = client.get("/v1/jobs/items/changes", params=parameters, headers=ARROW)
        page_rows = rows(answer.content)
        if not page_rows:
            break
        changes += page_rows
        since = answer.headers["x-next"]
    output = client.get(
        "/v1/jobs/items/changes?since=0", headers={"Accept": "application/json"}
    ).json()["changes"]
    assert [(c["op"], c["epoch"], c["seq"], c["name"]) for c in changes] == [
        (c["op"], c["epoch"], c["seq"], c["row"]["name"]) for c in output
    ]
