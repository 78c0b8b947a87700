"""Why a single message is too large, if the rows that it joins are."""

from __future__ import annotations

import pytest

from jobs.edge.tasks.fold_inputs import FoldReport
from jobs.edge.tasks.join import JoinReport
from jobs.edge.tasks.range_report import RangeReport
from jobs.running.outcome import Outcome

HOT = (9_000_000, "9,000,000 pairs of rows with the join key (7,) would change in one epoch")
OWN = "the rows of one message have more bytes than a task may hold (100); remove it from"
JOINED = (
    "the joined rows that one message changes have more bytes than a task may hold (100); "
    f"{HOT[1]}; use fewer columns, or join by one more column"
)


@pytest.mark.parametrize(
    "outcome, why",
    [
        (Outcome(ranges=[RangeReport(number=0, too_large=True)]), OWN),
        (Outcome(folds=[FoldReport(task=0, too_large=True)]), OWN),
        (
            Outcome(
                joins=[
                    JoinReport(task=0, most_pairs=(3, "few")),
                    JoinReport(task=1, most_pairs=HOT),
                ],
                folds=[FoldReport(task=0, too_large=True)],
            ),
            JOINED,
        ),
        (Outcome(joins=[JoinReport(task=0, too_large=True, refused="no more")]), "no more"),
    ],
    ids=["message", "rows", "joined rows", "pairs"],
)
def test_the_reason_says_whether_the_message_or_what_it_joins_is_too_large(
    outcome: Outcome, why: str
) -> None:
    assert outcome.too_large
    assert outcome.explain_too_large(100).startswith(why)
