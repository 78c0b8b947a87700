"""The progress of another job acts only when every record that it covers has been read."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jobs.core.time.followed import FollowedProgress, FollowedTopic
from tests.support.examples import examples


def progress(watermark: int, **ends: int) -> FollowedProgress:
    return FollowedProgress(watermark, False, {name.strip("p"): at for name, at in ends.items()})


def test_progress_waits_for_every_partition() -> None:
    topic = FollowedTopic()
    first = progress(10, p0=3, p1=5)
    topic.observe(first)
    assert topic.release({"0": 3, "1": 4}) is None
    assert topic.release({"0": 9}) is None
    assert topic.release({"0": 3, "1": 5}) == first
    assert topic.release({"0": 3, "1": 5}) is None


def test_the_newest_of_several_acts_if_all_is_read() -> None:
    topic = FollowedTopic()
    for number in range(1, 5):
        topic.observe(progress(number, p0=number))
    released = topic.release({"0": 4})
    assert released is not None
    assert released.watermark == 4


def test_progress_of_a_steady_stream_acts_although_newer_progress_always_waits() -> None:
    topic = FollowedTopic()
    acted = []
    for number in range(1, 50):
        topic.observe(progress(number, p0=10 * number))
        released = topic.release({"0": 10 * number - 5})  # always half an epoch behind
        acted += [] if released is None else [released.watermark]
    assert len(acted) > 20


steps = st.lists(st.tuples(st.sampled_from(["publish", "read"]), st.integers(0, 1)), max_size=60)


@examples(200)
@given(steps)
def test_no_progress_acts_before_its_results_are_read(history: list[tuple[str, int]]) -> None:
    """The other job publishes epoch after epoch; this one reads record after record."""
    topic, written, read = FollowedTopic(), {"0": 0, "1": 0}, {"0": 0, "1": 0}
    covered: dict[int, dict[str, int]] = {}
    acted = 0
    for number, (kind, partition) in enumerate(history, 1):
        if kind == "publish":
            written[str(partition)] += 1
            covered[number] = dict(written)
            topic.observe(FollowedProgress(number, False, dict(written)))
        else:
            read[str(partition)] = min(read[str(partition)] + 1, written[str(partition)])
        released = topic.release(read)
        if released is not None:
            assert released.watermark is not None
            assert released.watermark > acted
            acted = released.watermark
            assert all(read[each] >= end for each, end in covered[acted].items())
    released = topic.release(written)
    newest = max(covered, default=0)
    assert (acted if released is None else released.watermark) == newest, "nothing waits for ever"
