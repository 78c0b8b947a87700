"""Alignment: the fast wait for the slow, and the slow for nobody."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from jobs.core.time.alignment import Alignment
from tests.support.examples import examples


def aligned(max_drift: int = 1_000, every: int = 1_000) -> Alignment[str]:
    return Alignment(max_drift, every, 0)


def test_the_allowed_maximum_is_the_slowest_report_and_the_drift() -> None:
    """The reports of Flink's SourceCoordinatorAlignmentTest, one after the other."""
    alignment = aligned()
    allowed = []
    for reports in ([42], [42, 44], [5_000, 44], [44], [42, 44], [], [42], [42, 46]):
        alignment.update_allowed(reports, 0)
        allowed.append(alignment.allowed)
    assert allowed == [1_042, 1_042, 1_044, 1_044, 1_042, None, 1_042, 1_042]


def test_who_is_ahead_is_paused_and_goes_on_when_the_others_have_caught_up() -> None:
    """Flink's SourceOperatorSplitWatermarkAlignmentTest."""
    alignment = aligned(max_drift=0)
    alignment.update_allowed([4], 0)
    assert alignment.reset_paused({"split0": 5, "split1": 3})
    assert alignment.paused == {"split0"}
    alignment.update_allowed([5], 0)
    assert alignment.reset_paused({"split0": 5, "split1": 3})
    assert alignment.paused == frozenset()
    assert alignment.extend_paused({"split0": 11, "split1": 3})
    assert alignment.paused == {"split0"}
    assert alignment.extend_paused({"split0": 11, "split1": 12})
    assert alignment.paused == {"split0", "split1"}


def test_only_a_new_maximum_lets_one_go_on() -> None:
    alignment = aligned(max_drift=10)
    alignment.update_allowed([0], 0)
    alignment.extend_paused({"a": 11, "b": 0})
    assert not alignment.extend_paused({"a": 11, "b": 11})
    assert alignment.paused == {"a"}
    assert alignment.reset_paused({"b": 9})
    assert alignment.paused == frozenset()


def test_between_two_maxima_an_old_one_stops_nobody_who_only_caught_up() -> None:
    alignment = aligned(max_drift=10)
    alignment.update_allowed([0], 0)
    assert not alignment.extend_paused({"a": 5_000, "b": 4_995})
    assert alignment.extend_paused({"a": 5_006, "b": 4_995})
    assert alignment.paused == {"a"}


def test_a_maximum_is_due_on_the_beat_however_late_somebody_looks() -> None:
    alignment = aligned(every=1_000)
    assert alignment.next_update_at == 1_000
    alignment.update_allowed([], 1_000)
    assert alignment.next_update_at == 2_000
    alignment.update_allowed([], 4_700)
    assert alignment.next_update_at == 5_000


def test_nobody_is_limited_while_nobody_reports() -> None:
    alignment = aligned(max_drift=1)
    alignment.update_allowed([], 1_000)
    assert not alignment.extend_paused({"a": 10**15})


def test_a_snapshot_goes_on_on_the_same_beat() -> None:
    alignment = aligned(max_drift=5)
    alignment.update_allowed([10], 1_200)
    alignment.extend_paused({"a": 16, "b": 0})
    later = aligned(max_drift=5)
    later.restore(alignment.snapshot(1_500), alignment.paused, now=90_000)
    assert (later.allowed, later.next_update_at) == (15, 90_500)
    assert later.paused == {"a"}


@examples(100)
@given(st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 10_000), min_size=1))
def test_the_slowest_is_never_paused(watermarks: Mapping[str, int]) -> None:
    alignment = aligned(max_drift=1)
    alignment.update_allowed([min(watermarks.values())], 1_000)
    alignment.reset_paused(watermarks)
    slowest = min(watermarks, key=lambda name: watermarks[name])
    assert slowest not in alignment.paused
