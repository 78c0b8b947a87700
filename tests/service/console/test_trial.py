"""Trials: what a job would make of some messages is what it does make of them."""

from __future__ import annotations

import json
from typing import Any

from jobs.core.job.job_plan import plan_of
from jobs.topics.samples import Sample
from schemas.spec.connections import Connections
from schemas.spec.file import load_spec, read_text, validate
from schemas.spec.job import JobSpec
from service.console.editor.trial import Trial, run_trial

SPEC = """\
name: items
source: {topic: t}
columns: {name: STRING, v: INT}
query: SELECT name AS n, SUM(v * 2) AS twice, MAX(v) AS top FROM t WHERE v > 0 GROUP BY name
"""


def canal(
    kind: str,
    *rows: dict[str, Any],
    old: list[dict[str, Any]] | None = None,
    table: str = "t",
) -> bytes:
    output = {"type": kind, "database": "d", "table": table, "es": 1, "data": list(rows)}
    output["old"] = old
    return json.dumps(output).encode()


def trial(*values: bytes | None, spec: str = SPEC) -> Trial:
    loaded = load_spec(spec)
    samples = [
        Sample("t", 0, offset, 1_000 + offset, None, value) for offset, value in enumerate(values)
    ]
    return run_trial(loaded, plan_of(loaded), samples[::-1], Connections({}))


def test_messages_become_the_changelog_that_the_job_would_emit() -> None:
    found = trial(
        canal("INSERT", {"name": "bolt", "v": "3"}, {"name": "nut", "v": "-1"}),
        canal("INSERT", {"name": "bolt", "v": "9"}),
        canal("UPDATE", {"name": "bolt", "v": "4"}, old=[{"v": "9"}]),
    )
    assert found.no_changelog is None
    assert found.changelog == (("+I", '{"n": "bolt", "twice": 14, "top": 4}'),)
    newest, _, oldest = found.messages
    assert newest.rows == (("-", '{"name": "bolt", "v": 9}'), ("+", '{"name": "bolt", "v": 4}'))
    assert [sign for sign, _ in oldest.rows] == ["+", "+"]


JOINED = """\
name: revenue
sources:
  orders: {topic: t, table: orders, columns: {id: INT, customer_id: INT, amount: INT}}
  customers: {topic: t, table: customers, columns: {id: INT, region: STRING}}
query: >
  SELECT c.region, SUM(o.amount) AS revenue
  FROM orders AS o JOIN customers AS c ON o.customer_id = c.id GROUP BY c.region
"""


def try_tables(spec: str, *values: bytes) -> Trial:
    """Try messages of tables of one topic, from the oldest to the newest."""
    loaded = validate(JobSpec, read_text(spec, "spec"))
    samples = [Sample("t", 0, offset, None, None, value) for offset, value in enumerate(values)]
    return run_trial(loaded, plan_of(loaded), samples[::-1], Connections({}))


def change(table: str, *rows: dict[str, Any], old: list[dict[str, Any]] | None = None) -> bytes:
    return canal("UPDATE" if old else "INSERT", *rows, old=old, table=table)


def test_messages_of_several_sources_become_the_changelog_of_their_join() -> None:
    found = try_tables(
        JOINED,
        change("customers", {"id": "1", "region": "north"}, {"id": "2", "region": "south"}),
        change("orders", {"id": "7", "customer_id": "1", "amount": "3"}),
        change("orders", {"id": "8", "customer_id": "1", "amount": "4"}),
        change("orders", {"id": "9", "customer_id": "5", "amount": "9"}),
        change("customers", {"id": "1", "region": "east"}, old=[{"region": "north"}]),
    )
    assert found.no_changelog is None and found.hidden is None
    assert found.changelog == (("+I", '{"region": "east", "revenue": 7}'),)
    assert {each.source for each in found.messages} == {"orders", "customers"}
    outer = try_tables(
        JOINED.replace("JOIN", "LEFT JOIN"),
        change("orders", {"id": "9", "customer_id": None, "amount": "9"}),
    )
    assert outer.changelog == (("+I", '{"region": null, "revenue": 9}'),)


def test_why_a_join_of_some_messages_has_no_rows_is_shown() -> None:
    order = change("orders", {"id": "7", "customer_id": "1", "amount": "3"})
    alone = try_tables(JOINED, order)
    assert alone.changelog == () and alone.no_changelog is None
    assert alone.hidden == "No changelog rows: these few messages leave no joined row."
    empty = try_tables(JOINED, change("orders"))
    assert empty.no_changelog == "None of these messages has rows for this job."
    failing = JOINED.replace("o.customer_id = c", "o.customer_id / (o.amount - 3) = c")
    reason = try_tables(failing, order).no_changelog
    assert reason is not None and "fails" in reason and "amount - 3" in reason


def test_each_message_of_a_join_is_decoded_by_the_source_whose_table_it_is_of() -> None:
    found = try_tables(
        JOINED,
        canal("INSERT", {"id": "1"}, table="others"),
        change("customers", {"id": "x", "region": "north"}),
        change("orders", {"id": "7", "customer_id": "1", "amount": "3"}),
    )
    assert [(each.source, each.outcome) for each in found.messages] == [
        ("orders", "rows"),
        ("customers", "rejected"),
        ("orders", "filtered"),
    ]
    assert found.messages[0].rows == (("+", '{"customer_id": 1, "amount": 3}'),)


def test_a_message_that_would_be_refused_says_why_and_where() -> None:
    found = trial(canal("INSERT", {"name": "bolt", "v": "three"}), b"not json", None)
    tombstone, broken, unfit = found.messages
    assert (tombstone.outcome, broken.outcome, unfit.outcome) == ("skipped", "rejected", "rejected")
    assert unfit.reason is not None and "data[0].v" in unfit.reason
    assert found.no_changelog == "None of these messages has rows for this job."


def test_plain_events_are_tried_like_changes() -> None:
    json_spec = SPEC.replace("{topic: t}", "{topic: t, format: json, json: {paths: {v: a.v}}}")
    csv_spec = SPEC.replace("{topic: t}", '{topic: t, format: csv, csv: {delimiter: ";"}}')
    for spec, values in (
        (json_spec, [b'{"name": "bolt", "a": {"v": 3}}', b'{"name": "bolt", "a": 3}']),
        (csv_spec, [b"bolt;3", b"bolt"]),
    ):
        found = trial(*values, spec=spec)
        assert found.changelog == (("+I", '{"n": "bolt", "twice": 6, "top": 3}'),)
        assert [each.outcome for each in found.messages] == ["rejected", "rows"]


def test_messages_of_other_tables_are_told_apart() -> None:
    spec = SPEC.replace("{topic: t}", "{topic: t, table: ^other$}")
    (message,) = trial(canal("INSERT", {"name": "a", "v": "1"}), spec=spec).messages
    assert message.outcome == "filtered"


def test_an_expression_that_fails_is_said_to_fail() -> None:
    spec = SPEC.replace("SUM(v * 2)", "SUM(10 / (v - 1))")
    found = trial(canal("INSERT", {"name": "a", "v": "1"}), spec=spec)
    assert found.no_changelog is not None and "fails" in found.no_changelog
    assert found.messages[0].outcome == "rows"


def test_functions_give_what_the_job_would_give() -> None:
    spec = SPEC.replace("name AS n", "UPPER(name) AS n").replace("BY name", "BY UPPER(name)")
    found = trial(canal("INSERT", {"name": "a", "v": "1"}), spec=spec)
    assert found.changelog == (("+I", '{"n": "A", "twice": 2, "top": 1}'),)


def test_what_only_time_shows_is_left_to_the_job() -> None:
    spec = """\
name: items
source: {topic: t}
columns: {at: TIMESTAMP(3), v: INT}
watermark: {time: {column: at}}
query: >
  SELECT window_start, COUNT(*) AS n FROM t
  GROUP BY TUMBLE(at, INTERVAL '1' MINUTE)
"""
    values = canal("INSERT", {"at": "2026-01-31 12:00:00", "v": "1"})
    assert trial(values, spec=spec).changelog == (
        ("+I", '{"window_start": "2026-01-31 12:00:00", "n": 1}'),
    )
    found = trial(values, spec=spec + "emit: final\n")
    assert found.no_changelog == (
        "A trial run does not close windows; start the job to see results."
    )
    assert found.messages[0].outcome == "rows"


def test_long_messages_are_cut() -> None:
    found = trial(canal("INSERT", {"name": "x" * 100_000, "v": "1"}))
    assert len(found.messages[0].raw) <= 2_000


def test_groups_that_having_hides_are_counted() -> None:
    spec = load_spec(
        "name: items\nsource: {topic: t}\ncolumns: {name: STRING, v: INT}\n"
        "query: SELECT name, COUNT(*) AS n FROM t GROUP BY name HAVING COUNT(*) > 1\n"
    )
    rows = [{"name": name, "v": "1"} for name in ("a", "a", "b", "c")]
    value = json.dumps({"type": "INSERT", "data": rows}).encode()
    found = run_trial(spec, plan_of(spec), [Sample("t", 0, 0, None, None, value)], Connections({}))
    assert [op for op, _ in found.changelog] == ["+I"]
    assert found.hidden == "HAVING COUNT(*) > 1 hides 2 groups."
    assert found.messages[0].line == "+(name=a) +(name=a) and 2 more"
