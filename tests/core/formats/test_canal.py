from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.core.formats.registry import MessageDecoder, MessageRules
from jobs.core.formats.row_fields import Memo, find_lost_columns
from jobs.core.formats.table_filter import FILTERED
from jobs.core.plan.tree import Column
from jobs.core.values.change import (
    Changes,
    ColumnGone,
    Decoded,
    Filtered,
    Rejected,
    Row,
    Skipped,
    Truncated,
)
from jobs.core.values.json_text import is_too_deep
from schemas import limits
from schemas.types.sql_types import SqlType
from tests.support.examples import examples


def columns(**types: str) -> tuple[Column, ...]:
    return tuple(Column(name, SqlType.parse(text)) for name, text in types.items())


COLUMNS = columns(id="BIGINT", name="STRING", cnt="INT")
USED = COLUMNS[1:]
ROW = {"id": "1", "name": "a", "cnt": "3"}


def message(**members: Any) -> bytes:
    envelope = {"data": [ROW], "type": "INSERT", "es": 1_000, "ts": 2_000, "isDdl": False}
    return json.dumps(envelope | members, ensure_ascii=False).encode()


def decoder(bytes_max: int = limits.MESSAGE_BYTES_MAX, **rules: Any) -> MessageDecoder:
    return MessageRules("canal-json", **rules).decoder(COLUMNS, USED, bytes_max=bytes_max)


def decode(value: bytes | None, **options: Any) -> Decoded:
    """Decode in both ways, and check that they agree."""
    made = decoder(**options)
    decoded = made.decode(value)
    assert decoded == made.explain(value)
    return decoded


def changes(value: bytes, **options: Any) -> list[tuple[int, Row]]:
    decoded = decode(value, **options)
    assert isinstance(decoded, Changes), decoded
    return decoded.changes


def rejection(value: bytes, **options: Any) -> Rejected:
    decoded = decode(value, **options)
    assert isinstance(decoded, Rejected), decoded
    assert 0 < len(decoded.reason) <= limits.REASON_CHARACTERS_MAX
    return decoded


# --- rows -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "weight"), [("INSERT", 1), ("INIT", 1), ("DELETE", -1)])
def test_each_row_of_data_is_one_change(kind: str, weight: int) -> None:
    rows = [ROW, ROW | {"name": None, "cnt": "-4"}]
    assert changes(message(type=kind, data=rows)) == [(weight, ("a", 3)), (weight, (None, -4))]


def test_update_is_the_image_before_and_the_image_after() -> None:
    assert changes(message(type="UPDATE", old=[{"cnt": "2"}])) == [(-1, ("a", 2)), (1, ("a", 3))]


def test_absent_column_in_old_did_not_change_and_null_was_null() -> None:
    assert changes(message(type="UPDATE", old=[{"name": None}])) == [(-1, (None, 3)), (1, ("a", 3))]


def test_update_of_several_rows_tells_what_changed_row_by_row() -> None:
    rows = [ROW, {"id": "2", "name": "b", "cnt": "5"}]
    assert changes(message(type="UPDATE", data=rows, old=[{"name": "x"}, {"cnt": "4"}])) == [
        (-1, ("x", 3)),
        (1, ("a", 3)),
        (-1, ("b", 4)),
        (1, ("b", 5)),
    ]


def test_rows_of_old_beyond_data_are_ignored() -> None:
    old = [{"cnt": "2"}, {"cnt": "bad"}]
    assert changes(message(type="UPDATE", old=old)) == [(-1, ("a", 2)), (1, ("a", 3))]


def test_old_is_not_looked_at_where_nothing_was_updated() -> None:
    for old in (None, "nonsense", [{"cnt": "bad"}], [None]):
        assert changes(message(type="DELETE", old=old)) == [(-1, ("a", 3))]


def test_a_message_without_rows_is_no_change() -> None:
    assert changes(message(data=[])) == []


def test_times_of_the_message_are_kept_and_unreadable_ones_are_none() -> None:
    decoded = decode(message())
    assert isinstance(decoded, Changes) and (decoded.es, decoded.ts) == (1_000, 2_000)
    decoded = decode(message(es="soon", ts=2**63))
    assert isinstance(decoded, Changes) and (decoded.es, decoded.ts) == (None, None)
    assert decoded.changes == [(1, ("a", 3))]


def test_json_types_are_taken_as_well_as_text() -> None:
    assert changes(message(data=[{"id": 1, "name": 1.50, "cnt": 3}])) == [(1, ("1.5", 3))]


def test_column_names_are_told_apart_by_case_and_may_be_anything() -> None:
    names = ("CNT", "cnt", "Größe 1", 'a"b', "a.b", "class", "$")
    odd = tuple(Column(name, SqlType.parse("INT")) for name in names)
    for some in (odd, tuple(column for column in odd if '"' not in column.name)):
        made = MessageRules("canal-json").decoder(some, some)
        value = message(data=[{column.name: str(place) for place, column in enumerate(some)}])
        expected = Changes([(1, tuple(range(len(some))))], 1_000, 2_000)
        assert made.decode(value) == made.explain(value) == expected


def test_a_query_may_use_no_column_at_all() -> None:
    made = MessageRules("canal-json").decoder(COLUMNS, ())
    assert made.decode(message()) == Changes([(1, ())], 1_000, 2_000)
    made = MessageRules("canal-json").decoder(COLUMNS, COLUMNS[:1])
    assert made.decode(message(type="UPDATE", old=[{"id": "0"}])) == Changes(
        [(-1, (0,)), (1, (1,))], 1_000, 2_000
    )


def test_every_type_takes_the_fast_way() -> None:
    every = columns(
        a="BOOLEAN",
        b="TINYINT",
        c="FLOAT",
        d="DECIMAL(5,2)",
        e="DATE",
        f="TIMESTAMP(3)",
        g="TIMESTAMP_LTZ(9)",
        h="BINARY",
        i="TIME",
        j="DOUBLE",
        k="BIGINT",
    )
    row = {
        "a": "1",
        "b": "-1",
        "c": "3.14",
        "d": "1.005",
        "e": "1970-01-02",
        "f": "1970-01-01 00:00:01",
        "g": "1970-01-01 00:00:01Z",
        "h": "\u0001\u0002",
        "i": "01:02:03",
        "j": 1.5,
        "k": -5,
    }
    value = message(data=[row], type="UPDATE", old=[{"d": None}])
    expected = (
        True,
        -1,
        3.140000104904175,
        101,
        1,
        1_000_000,
        "1970-01-01 00:00:01.000000000",
        b"\x01\x02",
        "01:02:03",
        1.5,
        -5,
    )
    made = MessageRules("canal-json").decoder(every, every)
    made.explain = None  # type: ignore[assignment]
    decoded = made.decode(value)
    assert isinstance(decoded, Changes)
    assert decoded.changes == [(-1, (*expected[:3], None, *expected[4:])), (1, expected)]


# --- columns that are absent ----------------------------------------------------------------


def test_a_declared_column_absent_from_data_is_gone() -> None:
    for row in ({"id": "1", "name": "a"}, {"name": "a", "cnt": "3"}):
        decoded = decode(message(data=[ROW, row]))
        absent = next(iter({"id", "cnt"} - row.keys()))
        assert decoded == ColumnGone(absent, f"$.data[1].{absent} is missing in the message")


def test_a_declared_column_absent_from_data_is_null_where_the_job_goes_on() -> None:
    assert changes(message(data=[{"name": "a"}]), missing_is_null=True) == [(1, ("a", None))]


# --- types, DDL, filters --------------------------------------------------------------------


def test_tombstones_are_skipped() -> None:
    assert decode(None) == decode(b"") == Skipped("tombstone")


@pytest.mark.parametrize(
    "kind", ["CREATE", "ALTER", "ERASE", "RENAME", "CINDEX", "DINDEX", "QUERY", "INIT-DDL"]
)
def test_ddl_is_skipped_by_its_type_or_by_its_flag(kind: str) -> None:
    assert decode(message(type=kind, data=None)) == Skipped("ddl")
    assert decode(message(type="whatever", data=None, isDdl=True)) == Skipped("ddl")


def test_truncate_names_its_statement_and_no_rows() -> None:
    for is_ddl in (True, False):
        truncate = message(type="TRUNCATE", isDdl=is_ddl, data=None, sql="truncate product")
        assert decode(truncate) == Truncated("truncate product", "$.type", 1_000, 2_000)
        unnamed = message(type="TRUNCATE", isDdl=is_ddl, data=None, database="shop", table="p")
        assert decode(unnamed) == Truncated("TRUNCATE of shop.p", "$.type", 1_000, 2_000)
    other = message(type="TRUNCATE", data=None, table="another")
    assert decode(other, table="product") == FILTERED


def test_transaction_and_heartbeat_messages_are_skipped() -> None:
    assert isinstance(decode(message(type="XACOMMIT", data=None)), Skipped)


@pytest.mark.parametrize(
    ("sql", "lost"),
    [
        ("ALTER TABLE product DROP COLUMN cnt", [("cnt", None)]),
        ("alter table `shop`.`product` drop `cnt`, add column x int", [("cnt", None)]),
        ("ALTER TABLE p ADD x DECIMAL(10, 2), DROP CNT", [("CNT", None)]),
        ("ALTER TABLE p RENAME COLUMN cnt TO n", [("cnt", "n")]),
        ("ALTER TABLE p CHANGE COLUMN cnt n INT NOT NULL", [("cnt", "n")]),
        ("ALTER TABLE p CHANGE cnt cnt BIGINT", []),
        ("ALTER TABLE p MODIFY cnt BIGINT", []),
        ("ALTER TABLE p ADD COLUMN x INT COMMENT ', DROP COLUMN cnt'", []),
        ("ALTER TABLE p /* , DROP COLUMN cnt */ ADD x INT", []),
        ("ALTER TABLE p DROP INDEX cnt, DROP PRIMARY KEY, DROP FOREIGN KEY name", []),
        ("ALTER TABLE p RENAME TO cnt", []),
        ("ALTER TABLE p RENAME INDEX cnt TO name", []),
        ("DROP TABLE p", []),
        ("ALTER", []),
        ("ALTER TABLE", []),
        ("ALTER TABLE p DROP", []),
        ("", []),
    ],
)
def test_ddl_tells_which_columns_it_takes_away(
    sql: str, lost: list[tuple[str, str | None]]
) -> None:
    assert list(find_lost_columns(sql)) == lost


def test_ddl_that_takes_a_declared_column_away_says_so() -> None:
    value = message(type="ALTER", isDdl=True, data=None, sql="ALTER TABLE p DROP COLUMN CNT")
    decoded = decode(value)
    assert isinstance(decoded, ColumnGone) and decoded.column == "cnt"
    assert "drops it" in decoded.why
    assert decode(value, missing_is_null=True) == Skipped("ddl")
    value = message(type="ALTER", isDdl=True, data=None, sql="ALTER TABLE p DROP COLUMN other")
    assert decode(value) == Skipped("ddl")


def test_filters_match_the_whole_name() -> None:
    filters = {"database": "my.*", "table": "prod(uct)?"}
    assert changes(message(database="mydb", table="prod"), **filters)
    for database, table in (("amydb", "prod"), ("mydb", "products"), ("MYDB", "prod")):
        assert decode(message(database=database, table=table), **filters) == Filtered()


def test_what_is_filtered_out_is_not_looked_at_further() -> None:
    value = message(database="x", type="WEIRD", data=[{"other": 1}], isDdl="no")
    assert decode(value, database="y") == Filtered()
    assert decode(message(database="x", data=[{"cnt": "bad"}]), database="y") == Filtered()


def test_a_name_of_null_is_the_text_null() -> None:
    assert changes(message(database=None), database="null")
    assert decode(message(database=None), database="shop") == Filtered()
    assert changes(message(database=7), database="7")


def test_a_missing_name_is_rejected_only_where_it_is_filtered_by() -> None:
    assert rejection(message(), database="shop").path == "$.database"
    assert rejection(message(database="shop"), database="shop", table="t").path == "$.table"


def test_a_wrong_regex_is_an_error_of_the_source() -> None:
    with pytest.raises(ValueError, match="not a regular expression"):
        decoder(table="(")


@pytest.mark.parametrize(
    "name", ["a" * 30 + "!", "a" * 100_000 + "!", r"\ud800", r"a\n", r"a\u0000"]
)
def test_no_name_of_a_table_holds_up_its_pattern(name: str) -> None:
    """With backtracking, this pattern would exceed the time limit of the test."""
    made = decoder(database="(a|aa)+", table="(a+)+$")
    for place in ("database", "table"):
        filtered = message(**{"database": "a", "table": "a", place: "NAME"})
        filtered = filtered.replace(b"NAME", name.encode())  # with JSON's escapes
        assert made.decode(filtered) == made.explain(filtered) == Filtered()
    assert isinstance(made.decode(message(database="aaa", table="a" * 1_000)), Changes)


# --- bad messages ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("members", "path", "reason"),
    [
        ({"data": [ROW, ROW | {"cnt": "x"}]}, "$.data[1].cnt", "'x' is not a valid INT"),
        ({"data": [ROW | {"id": "1.5"}]}, "$.data[0].id", "not a valid BIGINT"),
        ({"data": [ROW | {"cnt": 2**31}]}, "$.data[0].cnt", "does not fit INT"),
        ({"data": [ROW, None]}, "$.data[1]", "null where a row object belongs"),
        ({"data": None}, "$.data", "data is null"),
        ({"data": ROW}, "$.data", "data is an object"),
        ({"type": None}, "$.type", "the type is missing"),
        ({"type": "insert"}, "$.type", "'insert' is unknown"),
        ({"type": 1}, "$.type", "1 is unknown"),
        ({"type": ["INSERT"]}, "$.type", "an array is unknown"),
        ({"type": "UPDATE"}, "$.old", "old is missing"),
        ({"type": "UPDATE", "old": None}, "$.old", "old is null"),
        ({"type": "UPDATE", "old": []}, "$.old", "old has 0 rows, data has 1"),
        ({"type": "UPDATE", "old": [None]}, "$.old[0]", "null where a row object belongs"),
        ({"type": "UPDATE", "old": [{"id": "x"}]}, "$.old[0].id", "'x' is not a valid BIGINT"),
    ],
)
def test_a_bad_message_names_the_field(members: dict[str, Any], path: str, reason: str) -> None:
    rejected = rejection(message(**members))
    assert rejected.path == path and reason in rejected.reason


def test_a_path_quotes_names_that_are_no_identifiers() -> None:
    odd = (Column("a b", SqlType.parse("INT")),)
    decoded = MessageRules("canal-json").decoder(odd, odd).decode(message(data=[{"a b": "x"}]))
    assert isinstance(decoded, Rejected) and decoded.path == '$.data[0]["a b"]'


@pytest.mark.parametrize(
    "value",
    [
        b" ",
        b"null",
        b"[]",
        b"{",
        b"not json",
        b'"text"',
        b"12",
        b"NaN",
        b"\x00",
        b"{}",
        b'{"type":"INSERT","data":[{"id":01}]}',
        b"[" * 100_000,
        b"{" * 5_000,
    ],
)
def test_what_is_no_canal_object_is_rejected(value: bytes) -> None:
    rejection(value)


def test_a_reason_is_short_and_printable_whatever_the_message_holds() -> None:
    giant = message(data=[ROW | {"cnt": "x" * 100_000}])
    assert len(rejection(giant).reason) < 200
    rejected = rejection(rb'{"type":"\ud800","data":[]}')
    rejected.reason.encode()
    name = (Column("n" * 10_000, SqlType.parse("INT")),)
    decoded = MessageRules("canal-json").decoder(name, name).decode(message())
    assert isinstance(decoded, ColumnGone)
    assert len(decoded.why) <= limits.REASON_CHARACTERS_MAX


def test_each_message_has_the_labels_that_it_names() -> None:
    made, row = decoder(), ROW | {"name": "2"}
    lists = ["enum('new','paid')", "enum('a','b')", "varchar(9)", "enum('new','paid')"]
    values = [message(data=[row], mysqlType={"name": each}) for each in lists]
    found = [made.decode(value) for value in values]
    assert found == [made.explain(value) for value in values]
    names = [each.changes[0][1][0] for each in found if isinstance(each, Changes)]
    assert names == ["paid", "b", "2", "paid"]


def test_labels_too_long_to_be_remembered_are_read_all_the_same() -> None:
    many = ",".join(f"'label {number:06}'" for number in range(20_000))
    long = message(data=[ROW | {"name": "20000"}], mysqlType={"name": f"enum({many})"})
    assert len(long) > limits.CACHED_TYPES_CHARACTERS_MAX
    assert changes(long) == [(1, ("label 019999", 3))]


def test_a_giant_is_rejected_by_its_size_before_it_is_parsed() -> None:
    assert "101 bytes; the limit is 100" in rejection(b"x" * 101, bytes_max=100).reason
    assert changes(message().ljust(200), bytes_max=200)
    assert "bytes" in rejection(b"{" * (limits.MESSAGE_BYTES_MAX + 1)).reason


@pytest.mark.parametrize("depth", [1_001, 100_000])
def test_deep_nesting_is_rejected_even_where_nobody_looks(depth: int) -> None:
    nested = b"[" * depth + b"]" * depth
    for value in (message()[:-1] + b',"x":' + nested + b"}", nested):
        assert "nested deeper" in rejection(value).reason


def test_nesting_in_a_text_column_is_limited_in_short_messages_too() -> None:
    value = message(data=[ROW | {"name": "NEST"}]).replace(b'"NEST"', b"[" * 99 + b"]" * 99)
    assert len(value) < limits.SHORT_MESSAGE_BYTES_MAX
    assert rejection(value).path == "$.data[0].name"


def test_many_rows_are_not_deep_nesting() -> None:
    many = message(data=[ROW] * 5_000)
    assert len(changes(many)) == 5_000
    assert len(changes(message(data=[ROW | {"name": "}},{{[[" * 50}] * 100))) == 100
    spaced = json.dumps({"type": "INSERT", "data": [ROW] * 200}, indent=2).encode()
    assert len(changes(spaced)) == 200


@pytest.mark.parametrize(
    "bad", [b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe5\x90"]
)
def test_malformed_utf8_is_rejected_wherever_it_stands(bad: bytes) -> None:
    for value in (
        message(data=[ROW | {"name": "HERE"}]).replace(b"HERE", bad),
        message(ignored="HERE").replace(b"HERE", bad),
    ):
        assert "not UTF-8 at byte" in rejection(value).reason


@pytest.mark.parametrize("bad", [rb"\ud800", rb"\udc00", rb"\ud800A", rb"\ud800\ud800"])
def test_a_lone_surrogate_is_rejected_in_a_column_and_ignored_elsewhere(bad: bytes) -> None:
    inside = message(data=[ROW | {"name": "HERE"}]).replace(b"HERE", bad)
    assert rejection(inside).path == "$.data[0].name"
    assert changes(message(ignored="HERE").replace(b"HERE", bad)) == [(1, ("a", 3))]


def test_text_is_kept_as_it_is() -> None:
    for text in ("é", "日本", "🦊", "a\x00b", "\ufeffa", "a\nb", "\u2028", "e\u0301"):
        assert changes(message(data=[ROW | {"name": text}])) == [(1, (text, 3))]
    raw = message(data=[ROW | {"name": "HERE"}]).replace(b"HERE", b"a\x00\nb")
    assert changes(raw) == [(1, ("a\x00\nb", 3))]


def test_a_byte_order_mark_and_trailing_content_are_ignored() -> None:
    assert changes(b"\xef\xbb\xbf" + message()) == [(1, ("a", 3))]
    assert changes(message() + b'{"trailing":1}') == [(1, ("a", 3))]
    assert changes(b" \t\n" + message() + b" oops") == [(1, ("a", 3))]


def test_the_last_of_duplicate_keys_counts() -> None:
    value = message().replace(b'"cnt": "3"', b'"cnt": "2", "cnt": "3"')
    assert changes(value) == [(1, ("a", 3))]


def test_numbers_are_exact_or_refused() -> None:
    def with_id(number: str, **types: str) -> Decoded:
        made = MessageRules("canal-json").decoder(columns(**types), columns(**types))
        value = b'{"type":"INSERT","data":[{"n":%s}]}' % number.encode()
        decoded = made.decode(value)
        assert decoded == made.explain(value)
        return decoded

    assert with_id("9007199254740993", n="BIGINT") == Changes([(1, (9007199254740993,))])
    assert with_id("9007199254740993", n="STRING") == Changes([(1, ("9007199254740993",))])
    assert with_id("0.1", n="DECIMAL(20,18)") == Changes([(1, (10**17,))])
    assert with_id("9007199254740993.5", n="DECIMAL(20,1)") == Changes([(1, (90071992547409935,))])
    assert with_id("-0", n="BIGINT") == Changes([(1, (0,))])
    for number in ("9" * 1_000_000, "1e400", "1e999999999", "1e9999999999999999999"):
        assert isinstance(with_id(number, n="BIGINT"), Rejected)
        assert isinstance(with_id(number, n="DECIMAL(38,0)"), Rejected)
        assert isinstance(with_id(number, n="DOUBLE"), Rejected)
    for number in ("NaN", "Infinity", "-Infinity"):
        assert isinstance(with_id(number, n="DOUBLE"), Rejected)
        assert isinstance(with_id(f'"{number}"', n="DOUBLE"), Changes)


# --- the decoder itself ---------------------------------------------------------------------


def test_a_decoder_travels_in_a_pickle() -> None:
    made = MessageRules("canal-json", "shop", None, "iso", True).decoder(
        COLUMNS, USED, bytes_max=300
    )
    again = pickle.loads(pickle.dumps(made))
    for value in (message(database="shop"), message(database="x"), message(), b"x" * 301):
        assert again.decode(value) == made.decode(value)


def test_a_memo_is_bounded_and_does_not_keep_long_texts() -> None:
    memo = Memo(lambda field: len(str(field)), entries_max=3)
    assert [memo[text] for text in ("a", "bb", "ccc", "dddd", "a")] == [1, 2, 3, 4, 1]
    assert len(memo) == 2
    assert memo["x" * 1_000] == 1_000 and "x" * 1_000 not in memo


def test_values_that_python_takes_for_equal_stay_apart() -> None:
    both = columns(n="INT", b="BOOLEAN", d="DOUBLE")
    made = MessageRules("canal-json").decoder(both, both)
    for row in ({"n": 1, "b": True, "d": 1.0}, {"n": "1", "b": "1", "d": "1"}):
        decoded = made.decode(message(data=[row]))
        assert isinstance(decoded, Changes)
        ((_, values),) = decoded.changes
        assert [type(value) for value in values] == [int, bool, float]
    assert isinstance(made.decode(message(data=[{"n": True, "b": True, "d": 1.0}])), Rejected)
    assert isinstance(made.decode(message(data=[{"n": 1, "b": True, "d": True}])), Rejected)


# --- properties -----------------------------------------------------------------------------

_FIELD = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
_CELL = st.sampled_from(["1", "-7", " 3 ", "", "x", "2147483648", None, 5, 1e3, 3.9, True]) | _FIELD
_OBJECT: st.SearchStrategy[Any] = st.dictionaries(
    st.sampled_from(["id", "name", "cnt", "more"]), _CELL
) | st.builds(dict, id=_CELL, name=_CELL, cnt=_CELL)
_MESSAGE = st.fixed_dictionaries(
    {"type": st.sampled_from(["INSERT", "UPDATE", "DELETE", "INIT", "TRUNCATE", "ALTER", None])},
    optional={
        "data": st.none() | st.lists(_OBJECT | st.none(), max_size=3),
        "old": st.none() | st.lists(_OBJECT | st.none(), max_size=3),
        "es": _FIELD,
        "isDdl": st.sampled_from([True, False, None, "x"]),
        "database": st.none() | st.sampled_from(["shop", "x"]) | _FIELD,
        "sql": st.none() | st.just("ALTER TABLE p DROP cnt") | st.text(),
    },
)
_DECODERS = [decoder(), decoder(missing_is_null=True), decoder(database="shop")]


@examples(250)
@given(_MESSAGE, st.sampled_from(_DECODERS))
def test_the_fast_way_and_the_exact_way_agree(
    members: dict[str, Any], made: MessageDecoder
) -> None:
    value = json.dumps(members).encode()
    decoded = made.decode(value)
    assert decoded == made.explain(value)
    if isinstance(decoded, Changes):
        for _, row in decoded.changes:
            name, cnt = row
            assert name is None or (type(name) is str and name.encode() is not None)
            assert cnt is None or (type(cnt) is int and -(2**31) <= cnt < 2**31)


@examples(250)
@given(st.binary(max_size=60), st.data(), st.sampled_from(_DECODERS))
def test_no_bytes_ever_raise(noise: bytes, data: st.DataObject, made: MessageDecoder) -> None:
    made.decode(noise)
    whole = message(type="UPDATE", old=[{"cnt": "2"}], database="shop")
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, min(len(whole), start + 20)))
    for value in (whole[:start], whole[start:], whole[:start] + noise + whole[end:]):
        decoded = made.decode(value)
        if isinstance(decoded, Rejected):
            decoded.reason.encode()


def test_a_depth_of_one_too_many_is_seen_among_neighbours_as_deep_as_may_be() -> None:
    """Each level has a neighbour at the limit, so there is no long run of brackets."""

    def spine(levels: int) -> bytes:
        inner = b"1"
        for level in range(levels, 0, -1):
            beside = max(limits.MESSAGE_DEPTH_MAX - level, 0)
            inner = b"[%b%b,%b]" % (b"[" * beside, b"]" * beside, inner)
        return inner.replace(b"[,", b"[") + b" " * limits.SHORT_MESSAGE_BYTES_MAX

    assert not is_too_deep(spine(limits.MESSAGE_DEPTH_MAX))
    assert is_too_deep(spine(limits.MESSAGE_DEPTH_MAX + 1))
