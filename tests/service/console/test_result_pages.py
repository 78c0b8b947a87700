"""The pages of results, groups, changes, quarantine and audits without a browser."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

from schemas.directory.quarantine import Replay, write_replay
from tests.support.console.shop import STORY_EPOCHS, Shop, put
from tests.support.service.served import Served

JOB = "/jobs/items"


@pytest.fixture
def client(shop: tuple[Served, Shop]) -> httpx.Client:
    return shop[0].client()


def text(client: httpx.Client, path: str, status: int = 200) -> str:
    answer = client.get(path, follow_redirects=True)
    assert answer.status_code == status, path
    return answer.text


def test_a_form_adds_a_condition_to_the_address(client: httpx.Client) -> None:
    answer = client.get(f"{JOB}/results?where=total%3E3&column=name&op=%5E%3D&value=bo&order=-top")
    assert answer.status_code == 303
    wanted = f"{JOB}/results?where=total%3E3&where=name%5E%3Dbo&order=-top"
    assert answer.headers["location"] == wanted
    found = text(client, wanted)
    assert "name starts with bo" in found and "total is greater than 3" in found
    assert "results/bolt" in found and "results/nut" not in found
    answer = client.get(f"{JOB}/results?column=name&op=is+null&value=x")
    assert answer.headers["location"] == f"{JOB}/results?where=name+is+null"


def test_a_condition_that_cannot_be_is_told_beside_it(client: httpx.Client) -> None:
    found = text(client, f"{JOB}/results?where=total%3E%3D%3Cscript%3E")
    assert 'id="refused"' in found and "total is " in found
    assert "<script>" not in found.replace('<script type="module"', "")
    assert "there is no epoch 999" in text(client, f"{JOB}/results?as_of=epoch:999")


def test_a_heading_sorts_and_sorts_back(client: httpx.Client) -> None:
    first = text(client, f"{JOB}/results")
    assert 'href="?order=-top"' in first
    second = text(client, f"{JOB}/results?order=-top")
    assert 'aria-sort="descending"' in second
    assert 'href="?order=top"' in second
    assert second.rindex("results/nut") < second.rindex("results/bolt")


def test_results_are_those_of_the_epoch_that_is_asked_for(client: httpx.Client) -> None:
    found = text(client, f"{JOB}/results?as_of=epoch:9")
    assert "as of epoch 9" in found
    assert (
        '<td class="num" data-column="top" data-label="top"><span class="shown num">16</span>'
        in found
    )  # 7 + 9


def test_what_differs_says_from_what_to_what(client: httpx.Client) -> None:
    found = text(client, f"{JOB}/diff?from=58&to=59")
    assert "results/bolt" in found and "decreased" in found
    assert "All groups have the same results" in text(client, f"{JOB}/diff?from=5&to=5")
    assert "there is no epoch 999" in text(client, f"{JOB}/diff?from=0&to=999")
    assert "+ added" in text(client, f"{JOB}/diff?from=0&to=5")


@pytest.mark.parametrize("query", ["", "?order=-top", "?where=name%5E%3Dn&as_of=epoch:9"])
def test_files_have_all_rows_as_the_routes_have_them(client: httpx.Client, query: str) -> None:
    rows = client.get(f"/v1{JOB}/results{query}").json()["rows"]
    answer = client.get(f"{JOB}/export/csv{query}")
    assert "attachment" in answer.headers["content-disposition"]
    read = list(csv.DictReader(io.StringIO(answer.text, newline="")))
    assert [(r["name"] or None, int(r["total"])) for r in read] == [
        (row["name"], row["total"]) for row in rows
    ]
    lines = client.get(f"{JOB}/export/jsonl{query}")
    assert [httpx.Response(200, text=line).json() for line in lines.text.splitlines()] == rows
    with pa.ipc.open_stream(client.get(f"{JOB}/export/arrow{query}").content) as stream:
        assert stream.read_all().to_pylist() == rows
    text(client, f"{JOB}/export/xlsx", 404)


def test_a_group_says_why_its_max_went_down(client: httpx.Client) -> None:
    found = text(client, f"{JOB}/results/bolt")
    assert (
        "top decreased from 65 to 7 in epoch 59: the value 65 was retracted once (read from "
        "t/0 [580, 590), /1 [406, 413)); 7 is now the greatest of 4."
    ) in found
    assert "oldest available epoch" not in found


def test_a_group_that_never_was_is_a_page_too(client: httpx.Client) -> None:
    assert "no such group" in text(client, f"{JOB}/results/nobody", 404)
    assert "key" in text(client, f"{JOB}/results/%7Bbroken", 422)


def test_a_page_of_a_group_with_a_slash_is_found(client: httpx.Client) -> None:
    assert "no such group" in text(client, f"{JOB}/results/a%2Fexplain", 404)


def test_the_quarantine_tells_what_was_refused_and_marks_what_was_sent_again(
    client: httpx.Client, shop: tuple[Served, Shop]
) -> None:
    number = STORY_EPOCHS
    identity = f"{number}-t-0-{10 * number}"
    write_replay(
        shop[1].place.replayed,
        Replay(
            id=identity,
            fixed=True,
            topic="t",
            partition=0,
            since=1,
            token="x",
            sent_at=1,
            offset=77,
        ),
    )
    found = text(client, f"{JOB}/quarantine")
    assert found.index(f"message-{identity[:-1]}3") < found.index(f"message-{identity}")
    assert "resent, corrected" in found and "binary" in found and "no value" in found
    one = text(client, f"{JOB}/quarantine/{identity}")
    assert "&#39;&lt;b&gt;&amp;amp;x&#39; is not a valid INT" in one
    assert (
        "The message is missing in the results of <code>name = &lt;b&gt;&amp;amp;</code>" in one
        and "dedupe: pk" in one
    )
    assert "t/0 @77" in one and "Resending it again counts its changes twice" in one
    binary = text(client, f"{JOB}/quarantine/{identity[:-1]}1")
    assert "ff fe 00 62 6f 6c 74" in binary
    assert "The message has no value." in text(client, f"{JOB}/quarantine/{identity[:-1]}3")
    text(client, f"{JOB}/quarantine/1-t-0-99", 404)


def test_an_audit_says_its_verdict_and_why(client: httpx.Client) -> None:
    listed = text(client, f"{JOB}/activity")
    for word in ("equal", "different", "undecided", "failed"):
        assert f">{word}</span>" in listed
    equal = text(client, f"{JOB}/activity/audit-equal")
    assert "The table equals the recomputation from the topic" in equal
    assert "recomputed from t/0 [0, 410), /1 [0, 287)" in equal
    different = text(client, f"{JOB}/activity/audit-different")
    assert "&lt;b&gt;&amp;amp;" in different and "no such group" in different
    assert "/jobs/items/results/%3Cb%3E%26amp%3B" in different
    undecided = text(client, f"{JOB}/activity/audit-undecided")
    assert "2 retractions before their rows, dropped" in undecided
    assert "1 group could not be compared" in undecided
    assert "has lost records" in text(client, f"{JOB}/activity/audit-failed")
    text(client, f"{JOB}/activity/none", 404)


def test_history_that_is_gone_is_said_to_be_gone(tmp_path: Path) -> None:
    """In the results, in a difference, and in the history of a group: nothing is made up."""
    table = Shop(tmp_path)
    table.write(*({"bolt": (7, 10 + epoch)} for epoch in range(8)), {"bolt": (7,)})
    table.forget(6)
    with Served.start(tmp_path) as served:
        put(served, table)
        with served.client() as client:
            now = text(client, f"{JOB}/results")
            assert "The oldest available epoch is 6." in now
            gone = text(client, f"{JOB}/results?as_of=epoch:3")
            assert "This history is no longer available." in gone and "as_of=epoch:6" in gone
            assert "This history is no longer available." in text(client, f"{JOB}/diff?from=2&to=9")
            story = text(client, f"{JOB}/results/bolt")
            assert "retention has removed the changes before epoch 7" in story
            assert "top decreased from 17 to 7 in epoch 9" in story
