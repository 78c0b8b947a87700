"""Which form a client gets: what it likes best of what there is."""

from __future__ import annotations

import csv
import json

import pytest

from service.answers.media import Media, choose_media, encode_csv
from service.problems import Problem

OFFERED = (Media.JSON, Media.NDJSON, Media.CSV)


@pytest.mark.parametrize(
    ("header", "media"),
    [
        (None, Media.JSON),
        ("*/*", Media.JSON),
        ("text/csv", Media.CSV),
        ("text/*", Media.CSV),
        ("text/csv;q=0.1, application/json;q=0.9", Media.JSON),
        ("image/png, application/x-ndjson", Media.NDJSON),
        ("text/html,application/xhtml+xml,*/*;q=0.8", Media.JSON),
        ("APPLICATION/JSON ; charset=utf-8", Media.JSON),
    ],
)
def test_a_client_gets_what_it_likes_best(header: str | None, media: Media) -> None:
    assert choose_media(header, *OFFERED) is media


@pytest.mark.parametrize("header", ["image/png", "text/csv;q=0", "text/csv;q=x", ",,,", "x" * 99])
def test_what_is_not_offered_is_refused(header: str) -> None:
    with pytest.raises(Problem) as refused:
        choose_media(header, *OFFERED)
    assert (refused.value.status, refused.value.code) == (406, "accept-unsupported")


def test_csv_tells_null_from_an_empty_text() -> None:
    rows = [b'{"a":null,"b":""}', b'{"a":"x,\\"y\\"\\n","b":true}', b'{"a":1.5,"b":"=1+1"}']
    lines = 'a,b\r\n,""\r\n"x,""y""\n",true\r\n1.5,=1+1\r\n'
    assert encode_csv(["a", "b"], rows).decode() == lines


def test_a_list_is_one_field_of_csv() -> None:
    rows = [b'{"k":"a","vs":[1,2]}', b'{"k":"b","vs":["x,y"]}', b'{"k":"c","vs":[1]}']
    found = list(csv.reader(encode_csv(["k", "vs"], rows, head=False).decode().splitlines()))
    assert found == [["a", "[1,2]"], ["b", '["x,y"]'], ["c", "[1]"]]


@pytest.mark.parametrize("text", ["-12.50", "-9007199254740993", "+1", "-1.5E-7", "a-b", ""])
def test_for_a_spreadsheet_a_number_that_is_text_stays(text: str) -> None:
    row = [json.dumps({"a": text}).encode()]
    assert encode_csv(["a"], row, spreadsheet=True) == encode_csv(["a"], row)


@pytest.mark.parametrize(
    "text", ["=1+1", "+1+1", "-1e", "--1", "-2+3", "@SUM(1)", "\t=1", "\r=1", "\n=1"]
)
def test_for_a_spreadsheet_no_text_is_a_formula_and_numbers_stay(text: str) -> None:
    row = [json.dumps({"a": text, "b": -1.5, "c": "a-b"}).encode()]
    cell = f"'{text}" if text[0] not in "\r\n" else f'"\'{text}"'
    found = encode_csv(["a", "b", "c"], row, head=False, spreadsheet=True)
    assert found.decode() == f"{cell},-1.5,a-b\r\n"
