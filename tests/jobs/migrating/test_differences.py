"""What of Flink SQL means something else here is a difference or refused, and never silent."""

from __future__ import annotations

import pytest

from jobs.migrating.conversion import Conversion, convert

KAFKA = "'properties.bootstrap.servers' = 'b:9092', 'topic' = "
FILE = f"""
CREATE TABLE orders (shop STRING, qty INT, at TIMESTAMP(3), WATERMARK FOR at AS at)
WITH ('connector' = 'kafka', 'format' = 'json', 'scan.startup.mode' = 'earliest-offset',
  {KAFKA}'orders');
CREATE TABLE up (shop STRING, n BIGINT, PRIMARY KEY (shop) NOT ENFORCED)
WITH ('connector' = 'upsert-kafka', 'key.format' = 'json', 'value.format' = 'json', {KAFKA}'up');
CREATE TABLE canal (shop STRING, n BIGINT) WITH ('connector' = 'kafka', 'format' = 'canal-json',
  /**/{KAFKA}'canal');
"""
COUNTS = "SELECT shop, COUNT(*) FROM orders GROUP BY shop;"
WINDOWS = (
    "INSERT INTO up SELECT shop, COUNT(*) FROM TABLE(TUMBLE({})) "
    "GROUP BY shop, window_start, window_end;"
)


def convert_after_tables(sql: str, options: str = "") -> Conversion:
    return convert(FILE.replace("/**/", options) + sql)


def differences(conversion: Conversion) -> list[str]:
    assert not conversion.problems
    return [note.text for draft in conversion.drafts for note in draft.differences]


def test_a_group_key_that_is_not_selected_is_in_the_key_of_the_sink() -> None:
    inner = "SELECT shop, qty, COUNT(*) AS n FROM orders GROUP BY shop, qty"
    conversion = convert_after_tables(f"INSERT INTO up SELECT shop, n FROM ({inner}) AS t;")
    assert differences(conversion) == [
        "the key is the group (shop, qty), not the sink's PRIMARY KEY (shop)"
    ]
    assert not differences(convert_after_tables(f"INSERT INTO up {COUNTS}"))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("'key.format' = 'json', 'key.fields' = 'shop',", []),
        (
            "'key.format' = 'json', 'key.fields' = 'shop;n',",
            ["the key is the group (shop), not the sink's key.fields (shop, n)"],
        ),
    ],
)
def test_key_fields_that_are_not_the_group_are_a_difference(
    options: str, expected: list[str]
) -> None:
    assert differences(convert_after_tables(f"INSERT INTO canal {COUNTS}", options)) == expected


def test_a_property_of_the_client_of_a_sink_has_a_note() -> None:
    conversion = convert_after_tables(
        f"INSERT INTO canal {COUNTS}",
        "'properties.linger.ms' = '5', 'canal-json.encode.decimal-as-plain-number' = 'true',",
    )
    (draft,) = conversion.drafts
    assert "linger.ms: a setting of Flink's client, left out" in draft.text()


@pytest.mark.parametrize(
    "option", ["canal-json.encode.ignore-nul-fields", "value.feilds-include", "key.feilds"]
)
def test_a_misspelled_option_of_a_sink_is_refused(option: str) -> None:
    conversion = convert_after_tables(f"INSERT INTO canal {COUNTS}", f"'{option}' = 'true',")
    assert [each.reason for each in conversion.problems] == [
        f"the option {option!r} has no counterpart"
    ]


@pytest.mark.parametrize(
    ("key", "harmless", "value"),
    [
        ("table.exec.sink.not-null-enforcer", "ERROR", "DROP"),
        ("table.exec.sink.type-length-enforcer", "ignore", "TRIM_PAD"),
        ("table.exec.emit.late-fire.enabled", "false", "true"),
    ],
)
def test_a_setting_that_changes_results_in_flink_only_is_a_difference(
    key: str, harmless: str, value: str
) -> None:
    windows = WINDOWS.format("TABLE orders, DESCRIPTOR(at), INTERVAL '1' HOUR")
    common = differences(convert_after_tables(f"SET '{key}' = '{harmless}'; {windows}"))
    found = differences(convert_after_tables(f"SET '{key}' = '{value}'; {windows}"))
    (added,) = set(found) - set(common)
    assert "Flink" in added


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        (
            f"INSERT INTO up {COUNTS.replace('GROUP', 'WHERE qty = 1 IS NOT TRUE GROUP')}",
            "put parentheses around",
        ),
        (
            f"INSERT INTO up {COUNTS.replace('GROUP', 'WHERE shop < shop IS NULL GROUP')}",
            "put parentheses around",
        ),
        (
            "CREATE TABLE f (a INT, d STRING) PARTITIONED BY (d) WITH ('connector' = 'filesystem');"
            f"INSERT INTO up {COUNTS}",
            "PARTITIONED BY has no counterpart",
        ),
        (
            WINDOWS.format(
                "TABLE orders, DESCRIPTOR(at), INTERVAL '1' HOUR, INTERVAL '0' HOUR, "
                "INTERVAL '1' HOUR"
            ),
            "TUMBLE needs",
        ),
        (
            WINDOWS.format(
                "DATA => TABLE orders, TIMECOL => DESCRIPTOR(at), SIZE => INTERVAL '1' HOUR, "
                "OFSET => INTERVAL '1' MINUTE"
            ),
            "TUMBLE needs",
        ),
    ],
)
def test_what_would_mean_something_else_is_refused(sql: str, reason: str) -> None:
    (problem,) = convert_after_tables(sql).problems
    assert reason in problem.reason
    assert problem.offset > len(FILE) - len("/**/")


def test_parentheses_around_is_or_the_comparison_say_which_is_meant() -> None:
    for words in ("(qty = 1) IS NOT TRUE", "(qty = 1) = ((qty < 9) IS TRUE)", "qty + 1 IS NULL"):
        sql = f"INSERT INTO up {COUNTS.replace('GROUP', f'WHERE {words} GROUP')}"
        (draft,) = convert_after_tables(sql).drafts
        assert words in draft.document["query"]


def test_having_and_not_between_symmetric_are_converted() -> None:
    (draft,) = convert_after_tables(
        "INSERT INTO up SELECT shop, COUNT(*) FROM orders WHERE qty NOT BETWEEN SYMMETRIC 5 AND 1 "
        "GROUP BY shop HAVING APPROX_COUNT_DISTINCT(qty) > 1;"
    ).drafts
    query = draft.document["query"]
    assert "NOT (qty BETWEEN 5 AND 1 OR qty BETWEEN 1 AND 5)" in query
    assert "HAVING COUNT(DISTINCT qty) > 1" in query
