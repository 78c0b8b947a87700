"""The service on a job with views: their list, each view, and several at one epoch."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

import retally
from jobs.cli.main import main
from retally import Change, Client
from tests.support.jobs.canal_messages import insert, row
from tests.support.jobs.epochs_by_hand import ByHand
from tests.support.service.served import Served, eventually, problem

pytestmark = pytest.mark.spark

VIEWS = {"sums": "SELECT k, SUM(v) AS s FROM t GROUP BY k", "whole": "SELECT COUNT(*) AS n FROM t"}


def test_views_are_read_one_by_one_and_together_at_one_epoch(
    by_hand: ByHand, capsys: pytest.CaptureFixture[str]
) -> None:
    job = by_hand.views(VIEWS, columns={"k": "STRING", "v": "INT"}, partitions=2)
    job.epoch_of([(0, insert(row("a", 1), row("b", 2)))])
    job.epoch_of([(1, insert(row("a", 5)))])
    with Served.start(by_hand.home) as served, served.client() as client:
        put = client.put("/v1/jobs/by-hand", json=job.spec.document())
        assert put.status_code == 201, put.text
        own = "/v1/jobs/by-hand/views"
        eventually(lambda: served.job("by-hand")["epoch"] == 2)
        views = client.get(own).json()["views"]
        assert [(each["name"], each["columns"]) for each in views] == [
            ("sums", ["k", "s"]),
            ("whole", ["n"]),
        ]
        sums = client.get(f"{own}/sums/results").json()
        assert (sums["epoch"], sums["rows"]) == (2, [{"k": "a", "s": 6}, {"k": "b", "s": 2}])
        assert client.get(f"{own}/sums/results/a").json()["row"] == {"k": "a", "s": 6}
        past = client.get(f"{own}/whole/results", params={"as_of": "epoch:1"}).json()
        assert past["rows"] == [{"n": 2}]
        history = client.get(f"{own}/sums/results/a/history").json()
        assert history, "no history"
        assert client.get(f"{own}/sums/results/a/explain").status_code == 200
        both = client.get("/v1/jobs/by-hand/results", params={"views": "sums,whole"}).json()
        assert both["epoch"] == 2
        assert both["views"]["whole"]["rows"] == [{"n": 3}]
        assert both["views"]["sums"]["rows"] == sums["rows"]
        before = client.get(
            "/v1/jobs/by-hand/results", params={"views": "whole,sums", "as_of": "epoch:1"}
        ).json()
        assert before["views"]["whole"]["rows"] == [{"n": 2}]
        assert {each["epoch"] for each in before["views"].values()} == {1}
        changes = client.get(
            f"{own}/sums/changes", params={"since": 1}, headers={"Accept": "application/json"}
        ).json()
        assert [each["op"] for each in changes["changes"]] == ["-U", "+U"]
        problem(client.get("/v1/jobs/by-hand/results"), 404, "view-required")
        problem(client.get(f"{own}/other/results"), 404, "job-unknown")
        changed = job.spec.document()
        by_value = "SELECT v, COUNT(*) AS times FROM t GROUP BY v"
        changed["views"]["more"] = {"query": by_value, "state": {"buckets": 4}}
        problem(client.put("/v1/jobs/by-hand", json=changed), 409, "query-fixed")
        kept = client.put("/v1/jobs/by-hand", json=changed, params={"replace": True})
        assert kept.status_code == 200, kept.text
        refused = client.post("/v1/jobs/by-hand/approve")  # nobody said that it may be dropped
        assert problem(refused, 409, "state-insufficient")["choices"] == ["replay", "drop"]
        assert client.get(f"{own}/whole/results").json()["rows"] == [{"n": 3}]
        document = client.get(f"{own}/sums").json()
        assert document["spec"]["query"] == VIEWS["sums"]
        words = ["results", "by-hand", "--view", "sums", "--json"]
        assert main([*words, "--service", served.address]) == 0
        assert main([*words, "--data", str(by_hand.home)]) == 0
        over_http, tables = capsys.readouterr().out.splitlines()[:2], None
        assert over_http == ['{"k": "a", "s": 6}', '{"k": "b", "s": 2}'], tables
        statement = "SELECT n, s FROM by-hand.whole, by-hand.sums WHERE k = 'a'"
        assert main(["sql", "--data", str(by_hand.home), statement, "--json"]) == 0
        assert '"n": 3, "s": 6' in capsys.readouterr().out
        _check_pages(client)
        _check_client(retally.connect(served.address))


@pytest.mark.slow
def test_approved_views_come_and_go(by_hand: ByHand) -> None:
    job = by_hand.views(VIEWS, columns={"k": "STRING", "v": "INT"}, partitions=2)
    job.epoch_of([(0, insert(row("a", 1), row("b", 2))), (1, insert(row("a", 5)))])
    served = Served.start(by_hand.home, brokers=by_hand.brokers)
    own, document = "/v1/jobs/by-hand/views", job.spec.document()
    try:
        with served.client() as client:
            assert client.put("/v1/jobs/by-hand", json=document).status_code == 201
            files = by_hand.home / "service" / "jobs" / "by-hand"
            eventually(lambda: _views_with_files(files) == {"sums", "whole"})
            eventually(lambda: served.job("by-hand")["epoch"] == 1)

            # One goes, and one comes that the state of another answers.
            del document["views"]["whole"]
            means = "SELECT k, AVG(v) AS mean FROM t GROUP BY k"
            document["views"]["means"] = {"query": means, "state": {"buckets": 4}}
            kept = client.put("/v1/jobs/by-hand", json=document, params={"replace": True}).json()
            found = kept["evolution"]
            assert (found["added"], found["dropped"]) == (["means"], ["whole"])
            assert found["continues"] and found["replays"]
            _must_evolve(client)
            listed = client.get(own).json()["views"]
            assert [each["name"] for each in listed] == ["sums", "means"]
            rows = client.get(f"{own}/means/results").json()
            assert (rows["epoch"], rows["rows"]) == (
                2,
                [{"k": "a", "mean": 3}, {"k": "b", "mean": 2}],
            )
            assert client.get(f"{own}/sums/results").json()["epoch"] == 2
            problem(client.get(f"{own}/whole/results"), 404, "job-unknown")
            eventually(lambda: _views_with_files(files) == {"sums", "means"})
            gone = client.get(f"{own}/means/results", params={"as_of": "epoch:1"})
            assert gone.status_code == 410, gone.text
    finally:
        served.stop()

    # The next start removes what a killed service has left.
    (files / "index-whole").mkdir()
    (files / "history-whole.json").write_text("{}")
    with Served.start(by_hand.home, brokers=by_hand.brokers) as served:
        eventually(lambda: _views_with_files(files) == {"sums", "means"})


def _views_with_files(files: Path) -> set[str]:
    """The views of which the service has an index or a history."""
    found = (*files.glob("index*"), *files.glob("history*"))
    return {path.stem.partition("-")[2] for path in found}


def _must_evolve(client: httpx.Client) -> None:
    """Approve the pending views; the pages and the list of views are there all the time."""
    approved = client.post("/v1/jobs/by-hand/approve")
    assert approved.status_code == 202, approved.text
    done = eventually(
        lambda: (
            _shows_views(client)
            and (seen := client.get(approved.headers["location"]).json())["state"]
            in ("DONE", "FAILED")
            and seen
        ),
        180,
    )
    assert done["state"] == "DONE", done


def _shows_views(client: httpx.Client) -> bool:
    for path in ("/jobs/by-hand", "/v1/jobs/by-hand/views", "/sql", "/"):
        answer = client.get(path)
        assert answer.status_code == 200, f"{path}: {answer.text[-600:]}"
    return True


def _check_pages(client: httpx.Client) -> None:
    """Each view has its results, groups and changes; a job with views has links to all of them."""
    own = "/jobs/by-hand/views"
    overview = client.get("/jobs/by-hand").text
    for view, query in VIEWS.items():
        assert f'href="{own}/{view}/results"' in overview and query in overview
    assert "views: sums, whole" in client.get("/").text
    assert "by-hand.whole" in client.get("/sql").text
    sums, whole = (client.get(f"{own}/{view}/results").text for view in VIEWS)
    assert f'href="{own}/sums/results/a"' in sums and f'href="{own}/whole/results"' in sums
    assert 'href="?order=-n"' in whole and "order=-s" not in whole
    group = client.get(f"{own}/sums/results/a").text
    assert "Epoch 2" in group and f'href="{own}/sums/changes?key=' in group
    assert f'data-base="{own}/sums"' in client.get(f"{own}/sums/changes").text
    assert f"{own}/sums/results/a" in client.get(f"{own}/sums/diff").text
    assert client.get(f"{own}/sums/export/csv").text.splitlines()[0] == "k,s"
    assert "'whole:accumulators'" in client.get(f"{own}/whole").text.replace("&#39;", "'")
    for page in (f"{own}/other", f"{own}/other/results"):
        missing = client.get(page)
        assert missing.status_code == 404, page
        assert "job &#39;by-hand&#39; has no view &#39;other&#39;" in missing.text
        assert 'href="/jobs/by-hand">Back to by-hand</a>' in missing.text
    found = client.get(f"{own}/sums/results?column=k&op=%3D&value=a")
    assert found.headers["location"].startswith(f"{own}/sums/results?where=k%3Da")
    assert f'href="{own}/sums/results">Back to' in client.get(f"{own}/sums/results/none").text


def _check_client(client: Client) -> None:
    """A client reads the list of views, several at one epoch, and each as `JOB.VIEW`."""
    assert [(view.name, view.groups) for view in client.views("by-hand")] == [
        ("sums", 2),
        ("whole", 1),
    ]
    both = client.results_of_views("by-hand", "sums", "whole", as_of="epoch:1")
    assert {view: each.epoch for view, each in both.items()} == {"sums": 1, "whole": 1}
    assert both["whole"].rows == [{"n": 2}]
    assert list(client.results("by-hand.sums", order="k")) == [
        {"k": "a", "s": 6},
        {"k": "b", "s": 2},
    ]
    assert client.group("by-hand.sums", "a").row == {"k": "a", "s": 6}
    assert client.history("by-hand.sums", "a")
    assert client.explain("by-hand.sums", "a")
    first = next(client.follow("by-hand.sums", since=1))
    assert isinstance(first, Change) and first.epoch == 2
