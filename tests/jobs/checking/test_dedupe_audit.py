"""The last rows of keys for an audit, without Spark: changes of keys, and topics without order."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from jobs.checking.dedupe_audit import (
    DOUBT,
    KIND,
    MESSAGE,
    POSITION,
    SIGN,
    TIME,
    LastRows,
    format_position,
    read_kinds,
)
from jobs.core.job.job_plan import plan_of
from jobs.core.rows.dedupe import NO_TRUNCATIONS, number_partition
from jobs.core.rows.truncations import Truncation, Truncations
from jobs.core.values.change import Row
from schemas.spec.file import load_spec

PLAN = plan_of(
    load_spec(
        {
            "name": "j",
            "source": {"topic": "t"},
            "columns": {"id": "BIGINT", "name": "STRING"},
            "query": "SELECT name, COUNT(*) AS n FROM t GROUP BY name",
            "primary_key": ["id"],
            "dedupe": "pk",
        }
    )
)
Message = tuple[int, int, list[tuple[int, Row]]]  # partition, offset, signed rows (name, id)


def last_rows(
    messages: Sequence[Message], truncations: Truncations = NO_TRUNCATIONS
) -> list[dict[str, object]]:
    """Return the last rows of keys, of messages in the order of their positions."""
    rows = []
    for partition, offset, changes in messages:
        kinds = read_kinds(PLAN, changes, keys_change=True)
        for index, ((sign, (name, key)), kind) in enumerate(zip(changes, kinds, strict=True)):
            own = {
                MESSAGE: f"t/{partition}/{offset}",
                POSITION: format_position("t", partition, offset, index),
                SIGN: sign,
                KIND: kind,
                TIME: 1_000,
            }
            rows.append({"name": name, "id": key} | own)
    rows.sort(key=lambda row: str(row[POSITION]))
    (found,) = LastRows(PLAN, truncations)(iter([pa.RecordBatch.from_pylist(rows)]))
    last: list[dict[str, object]] = found.to_pylist()
    return last


INSERTED: Message = (1, 0, [(1, ("a", 1))])
MOVED: Message = (0, 0, [(-1, ("a", 1)), (1, ("a", 2))])


def test_a_key_that_was_left_in_another_partition_has_no_row() -> None:
    (row,) = last_rows([MOVED, INSERTED])
    assert (row["name"], row["id"], row[SIGN], row[DOUBT]) == ("a", 2, 1, None)
    assert row[MESSAGE] == "t/0/0"
    deleted: Message = (0, 1, [(-1, ("a", 2))])
    assert last_rows([MOVED, deleted, INSERTED]) == []


def test_an_update_in_place_sets_the_row_once() -> None:
    updated: Message = (1, 1, [(-1, ("a", 1)), (1, ("b", 1))])
    (row,) = last_rows([INSERTED, updated])
    assert (row["name"], row[SIGN], row[MESSAGE]) == ("b", 1, "t/1/1")


def test_a_key_with_changes_in_two_partitions_is_in_doubt_and_named() -> None:
    elsewhere: Message = (0, 7, [(-1, ("a", 1))])
    (row,) = last_rows([INSERTED, elsewhere])
    assert row[DOUBT] == "keys_in_several_partitions"
    assert row["__reason"] == "key (1,) is set at t/0/7 and at t/1/0"


def test_a_truncate_takes_the_rows_from_before_it_and_what_may_be_is_in_doubt() -> None:
    partition = number_partition("t", 0)
    behind = Truncations((Truncation.of(partition, 1_500, 1_600, position=1),))
    set_before: Message = (0, 0, [(1, ("a", 2))])
    set_after: Message = (0, 1, [(1, ("b", 4))])
    (row,) = last_rows([INSERTED, set_before, set_after], behind)
    assert (row["id"], row[DOUBT]) == (4, None)
    around = Truncations((Truncation.of(partition, 900, 1_000, position=1),))
    (row,) = last_rows([INSERTED], around)
    assert (row["id"], row[DOUBT]) == (1, "ambiguous_keys")
    assert row["__reason"] == (
        "key (1,), last set at t/1/0, has a row that was set just before or just after a TRUNCATE"
    )
