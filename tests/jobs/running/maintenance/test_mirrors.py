"""When mirrors are refreshed: by default, within their share, and at the end of a run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jobs.running.mirror import Mirror, MirrorShare, read_processor_seconds
from schemas import limits
from schemas.directory.documents import read_document, write_document
from schemas.directory.reports import MirrorReport
from schemas.spec.file import load_spec
from schemas.spec.job import JobSpec

SPEC = """\
name: items
source: {topic: t}
columns: {name: STRING, v: INT}
query: SELECT name, SUM(v) AS total FROM t GROUP BY name
"""


def spec_of(text: str = "") -> JobSpec:
    return load_spec(SPEC + text)


def test_a_job_that_goes_on_has_a_mirror_unless_it_says_off() -> None:
    assert spec_of().find_mirror_intervals(endless=True) == {"": 60_000}
    assert spec_of().find_mirror_intervals(endless=False) == {}
    for endless in (True, False):
        assert spec_of("mirror: 5s\n").find_mirror_intervals(endless=endless) == {"": 5_000}
        assert spec_of("mirror: off\n").find_mirror_intervals(endless=endless) == {}
        assert spec_of('mirror: "off"\n').find_mirror_intervals(endless=endless) == {}


def test_each_view_has_a_mirror_of_its_own() -> None:
    views = """\
views:
  top: {query: SELECT MAX(v) AS m FROM t}
  n: {query: SELECT MIN(v) AS m FROM t, mirror: off}
"""
    assert spec_of(views).find_mirror_intervals(endless=True) == {"": 60_000, "top": 60_000}


@pytest.mark.parametrize(
    ("text", "groups", "made", "left_out"),
    [
        ("", limits.MIRROR_DEFAULT_GROUPS_MAX, False, False),
        ("", limits.MIRROR_DEFAULT_GROUPS_MAX + 1, False, True),
        ("", limits.MIRROR_DEFAULT_GROUPS_MAX + 1, True, False),
        ("mirror: 1m\n", limits.MIRROR_DEFAULT_GROUPS_MAX + 1, False, False),
    ],
)
def test_only_the_first_copy_of_many_groups_needs_the_key(
    text: str, groups: int, made: bool, left_out: bool, tmp_path: Path
) -> None:
    mirror = Mirror.__new__(Mirror)
    mirror.path = tmp_path if made else tmp_path / "absent"
    mirror.subtable = cast(Any, SimpleNamespace(view=""))
    newest = SimpleNamespace(groups=groups)
    mirror.pipeline = cast(Any, SimpleNamespace(spec=spec_of(text), newest=newest))
    assert mirror.is_left_out is left_out


def test_the_document_of_a_spec_without_the_key_does_not_change() -> None:
    assert "mirror" not in spec_of().document()
    document = spec_of("mirror: off\n").document()
    assert document["mirror"] == "off"
    assert load_spec(document) == spec_of("mirror: off\n")


class Meter:
    """A clock and the processor time of a job that spends `rate` of a core without its mirrors."""

    def __init__(self, rate: float) -> None:
        self.rate, self.now, self.spent = rate, 0.0, 0.0
        self.share = MirrorShare(lambda: self.spent, lambda: self.now)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.spent += self.rate * seconds

    def refresh(self, seconds: float, cost: float, *, counts: bool = True) -> None:
        with self.share.measure(counts=counts):
            self.pass_time(seconds)
            self.spent += cost

    def rest(self) -> float:
        """Return the seconds until another refresh may begin."""
        began = self.now
        while not self.share.allows():
            self.pass_time(0.05)
        return self.now - began


@pytest.mark.parametrize(("rate", "cost"), [(0.2, 1.0), (0.7, 4.0), (1.9, 0.1), (1.0, 30.0)])
def test_mirrors_take_a_twentieth_of_the_jobs_processor_time(rate: float, cost: float) -> None:
    meter = Meter(rate)
    meter.pass_time(60)
    before = meter.spent
    for _ in range(10):
        meter.refresh(0.01, cost)
        assert meter.share.cost == pytest.approx(cost)
        meter.rest()
    share = 10 * cost / (meter.spent - before)
    assert share == pytest.approx(limits.MIRROR_SHARE_MAX, rel=0.1)
    assert share <= limits.MIRROR_SHARE_MAX


def test_the_mirror_of_a_job_that_does_little_takes_a_hundredth_of_a_core() -> None:
    meter = Meter(0.01)
    meter.pass_time(60)
    meter.refresh(0.1, 0.5)
    assert meter.rest() == pytest.approx(0.5 / limits.MIRROR_CORE_SHARE, abs=0.1)


def test_a_refresh_that_takes_long_rests_until_it_was_a_hundredth_of_the_time() -> None:
    meter = Meter(1.5)
    meter.pass_time(60)
    meter.refresh(3.0, 1.0)  # alone by its processor time it would rest for 13 s
    assert meter.rest() == pytest.approx(297, abs=0.1)


def test_what_loads_classes_does_not_count() -> None:
    meter = Meter(0.5)
    meter.pass_time(60)
    meter.refresh(9.0, 9.0, counts=False)
    assert meter.rest() == 0


def test_jobs_that_share_a_jvm_share_what_mirrors_may_take() -> None:
    meter = Meter(1.0)
    meter.share = MirrorShare(lambda: meter.spent, lambda: meter.now, jobs=4)
    meter.pass_time(60)
    meter.refresh(0.01, 0.5)
    assert meter.rest() == pytest.approx(0.5 * (4 / limits.MIRROR_SHARE_MAX - 1), abs=0.5)


def test_the_processor_time_of_children_counts() -> None:
    before = read_processor_seconds(os.getpid())
    busy = "import time\nwhile time.process_time() < 0.3: pass"
    subprocess.run([sys.executable, "-c", busy], check=True)
    assert read_processor_seconds(os.getpid()) - before >= 0.3


def test_the_age_of_a_mirror_is_that_of_the_epochs_that_it_lacks(tmp_path: Path) -> None:
    report = MirrorReport(epoch=3, refreshed_at=1_000)
    path = tmp_path / "views" / "top" / "mirror.json"
    assert read_document(path, MirrorReport) is None
    write_document(path, report)
    assert read_document(path, MirrorReport) == report
    assert (report.age_ms(3, 61_000), report.age_ms(4, 61_000)) == (0, 60_000)
