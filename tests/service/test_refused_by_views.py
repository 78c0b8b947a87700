"""A message that a job with only views refused is resent over the address of a view."""

from __future__ import annotations

import retally
from tests.support.jobs.canal_messages import insert, row
from tests.support.jobs.epochs_by_hand import ByHand
from tests.support.service.served import Served, eventually, problem

VIEWS = {
    "sums": "SELECT k, SUM(v) AS s FROM t GROUP BY k",
    "times": "SELECT k, COUNT(*) AS n FROM t GROUP BY k",
}


def test_a_corrected_message_is_sent_once_and_counts_in_all_views(by_hand: ByHand) -> None:
    columns = {"k": "STRING", "v": "INT"}
    job = by_hand.views(VIEWS, columns=columns, max_bad_fraction=1.0)
    job.epoch_of([(0, insert(row("a", 1))), (0, insert(row("b", "x")))])
    with Served.start(by_hand.home, brokers=by_hand.brokers) as served:
        with served.client() as http:
            assert http.put("/v1/jobs/by-hand", json=job.spec.document()).status_code == 201
            eventually(lambda: served.job("by-hand")["epoch"] == 1)
            client = retally.connect(served.address)
            (refused,) = client.quarantine("by-hand.times")
            address = f"/v1/jobs/by-hand/views/times/quarantine/{refused.id}/replay"
            again = http.post(address, json={"message": insert(row("b", "y")).decode()})
            problem(again, 422, "message-refused")
            operation = client.replay("by-hand.times", refused.id, insert(row("b", 2)))
            done = client.wait_until_ended(operation)
            assert (done.state, done.job) == ("DONE", "by-hand"), done.reason
            assert done.result is not None and done.result["offset"] == 2
            assert [each.id for each in client.operations("by-hand")] == [done.id]
            resent = http.post(address.replace("times", "sums"), json={})
            problem(resent, 409, "message-replayed")
        job.epoch()
        assert job.at_view("sums").results() == {("a",): (1,), ("b",): (2,)}
        assert job.at_view("times").results() == {("a",): (1,), ("b",): (1,)}
