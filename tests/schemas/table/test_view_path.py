"""The roots and names of views, from the table and from the view."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from jobs.reading.files import LiveFile, files_of_view, own_files, place_file
from schemas.table.epoch import VIEWS
from schemas.table.object_path import ObjectPath
from schemas.table.view_path import name_from, place_name, split_root, view_root
from tests.support.epoch_rows import epoch_row

VIEW = st.sampled_from(["", "top", "by-name"])


@given(VIEW)
def test_a_root_names_its_table_and_its_view(view: str) -> None:
    for table in (Path("data/jobs/items/epochs"), ObjectPath("bucket/items/epochs")):
        assert split_root(view_root(table, view)) == (table, view)


@given(VIEW, st.sampled_from(["part=changelog/x", "view=top/part=changelog/x"]))
def test_a_name_is_found_from_the_root_of_any_view(view: str, name: str) -> None:
    seen = name_from(name, view)
    assert place_name(seen, view) == name
    table = ObjectPath("bucket/items/epochs")
    assert view_root(table, view) / seen == table / name


def file(part: str, path: str) -> LiveFile:
    return LiveFile(path, part, 1, 1, 1, 1)


def test_a_view_sees_its_files_and_those_of_all_views() -> None:
    epochs, bad = file("epochs", "part=epochs/e"), file("quarantine", "part=quarantine/q")
    main = file("changelog", "part=changelog/m")
    top = file("top:changelog", "view=top/part=changelog/t")
    own = file("top:quarantine", "view=top/part=quarantine/o")
    everything = [epochs, bad, main, top, own]
    assert files_of_view(everything, "top") == [
        file("epochs", "../part=epochs/e"),
        file("quarantine", "../part=quarantine/q"),
        file("changelog", "part=changelog/t"),
        file("quarantine", "part=quarantine/o"),
    ]
    assert own_files(everything, "") == [epochs, bad, main]
    merged = own_files(everything, "top")
    assert [place_file(each, "top") for each in merged] == [top, own]
    assert [place_file(each, "top") for each in files_of_view([epochs], "top")] == [epochs]


def test_an_epoch_row_of_a_view_is_as_in_a_job_of_its_own() -> None:
    row = epoch_row(
        3,
        watermarks={"combined": 7},
        counters={
            "read": 5,
            "groups": 9,
            "dropped_keys": {"x": 1},
            VIEWS: {
                "": {"plan": "p", "counters": {"groups": 4}},
                "top": {
                    "plan": "q",
                    "counters": {"groups": 5},
                    "time": {"agenda": {"withheld": 2}},
                },
            },
        },
        files={
            "epochs": ["part=epochs/e"],
            "changelog": ["part=changelog/m"],
            "top:changelog": ["view=top/part=changelog/t"],
        },
    )
    top, main = row.of_view("top"), row.of_view("")
    assert (top.plan, top.groups, top.counters) == ("q", 5, {"read": 5, "groups": 5})
    assert top.files == {"epochs": ["../part=epochs/e"], "changelog": ["part=changelog/t"]}
    assert main.files == {"epochs": ["part=epochs/e"], "changelog": ["part=changelog/m"]}
    assert top.withholds and not main.withholds
    assert (main.plan, main.groups, main.watermark) == ("p", 4, 7)
    assert row.of_view("later").counters == {"read": 5, "groups": 0}
    assert row.views == ("", "top")
    plain = epoch_row(0)
    assert plain.of_view("") is plain and plain.views == ()
