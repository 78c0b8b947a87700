"""The record of the published changelog."""

from __future__ import annotations

import msgspec
import pytest

from schemas.table.changelog import ChangelogRecord, progress_topic


def test_record_has_op_row_epoch_seq_in_this_order() -> None:
    record = ChangelogRecord(op="+I", row={"name": "a", "sum_cnt": "3.50"}, epoch=7, seq=3)
    assert record.encode() == b'{"op":"+I","row":{"name":"a","sum_cnt":"3.50"},"epoch":7,"seq":3}'


def test_encoded_record_reads_back_as_the_same() -> None:
    record = ChangelogRecord(
        op="-U", row={"a": None, "b": 2**53, "c": 1.5, "d": "é\n"}, epoch=1, seq=0
    )
    assert ChangelogRecord.decode(record.encode()) == record


@pytest.mark.parametrize(
    "value",
    [
        b'{"op":"+X","row":{},"epoch":1,"seq":1}',
        b'{"op":"+I","row":{},"epoch":1}',
        b'{"op":"+I","row":{},"epoch":1,"seq":1,"more":1}',
        b'{"op":"+I","row":{"a":{}},"epoch":1,"seq":1}',
        b'{"op":"+I","row":[],"epoch":"1","seq":1}',
    ],
)
def test_what_is_no_record_is_refused(value: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        ChangelogRecord.decode(value)


def test_progress_stands_beside_the_changelog() -> None:
    assert progress_topic("items-changes") == "items-changes-progress"
