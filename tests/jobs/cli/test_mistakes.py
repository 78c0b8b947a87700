"""What a user gets wrong, and that the answer has the mistake, its place and the correction.

Each row is a mistake that a newcomer made.
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from jobs.cli.main import build_parser, main
from jobs.cli.parser import NEIGHBOUR_ACTIONS, NEIGHBOURS
from jobs.edge.machine.java import java
from jobs.edge.process.broker import Broker
from tests.support.command.lab import Retally
from tests.support.jobs.running_job import create_topic

HEAD = "name: items\nsource: {topic: shop}\ncolumns: {id: BIGINT, name: STRING, cnt: INT}\n"
QUERY = "query: SELECT name, COUNT(*) AS n FROM t GROUP BY name\n"


def query(sql: str) -> str:
    return f"{HEAD}query: {sql}\n"


# A spec; the place of the mistake; what is wrong; what to do.
SPECS: dict[str, tuple[str, str, str, str]] = {
    "indentation": (
        "name: items\nsource:\n  topic: shop\n format: canal-json\n",
        "4:2",
        "does not continue the lines before it",
        "indent the keys of one mapping alike",
    ),
    "a key inside a text": (
        "name: items\n  source: {topic: shop}\n",
        "2:9",
        "a `:` is not expected here",
        "indent this key like its neighbours",
    ),
    "a tab": ("name: items\nsource:\n\ttopic: shop\n", "3:1", "a tab cannot indent", "use blanks"),
    "an open quote": ('name: "items\nsource: 1\n', "1:7", "never closed", "add the second"),
    "an open brace": (
        "name: items\nsource: {topic: shop\ncolumns: {}\n",
        "3:8",
        "a } or a comma is missing before this",
        "opened in line 2, column 9",
    ),
    "a value that begins with @": ("name: @items\n", "1:7", "begin with @", "put it in quotes"),
    "an empty file": ("", "1:1", "is empty", "a mapping of keys is expected"),
    "an unknown column": (query("SELECT SUM(count) FROM t"), "4:19", "`count`", "(try: cnt)"),
    "an unknown type": (
        HEAD.replace("INT}", "INTT}") + QUERY,
        "3:37",
        "unknown type 'INTT'",
        "INT",
    ),
    "a type with a comma in braces": (
        HEAD.replace("INT}", "DECIMAL(10,2)}") + QUERY,
        "3:37",
        "half a type, because inside { } a comma ends a value",
        "put the type in quotes",
    ),
    "a misspelled key": (
        HEAD + QUERY + "snik: {topic: x}\n",
        "5:1",
        "unknown key 'snik'",
        "did you mean 'sink'?",
    ),
    "addresses in the spec": (
        HEAD + QUERY + "brokers: localhost:9092\n",
        "5:1",
        "unknown key 'brokers'",
        "addresses come from --brokers",
    ),
    "an unknown format": (
        HEAD.replace("shop}", "shop, format: orc}") + QUERY,
        "2:23",
        "not 'orc'",
        "canal-json, changelog-json",
    ),
    "a job's name": (
        HEAD.replace("items", "My_Items") + QUERY,
        "1:1",
        "'My_Items' is not a job name",
        "begin with a letter",
    ),
    "a join with what is no source": (
        query("SELECT name, COUNT(*) FROM t JOIN u ON t.id = u.id GROUP BY name"),
        "4:42",
        "`u` and `t` are two sources, and the job reads one",
        "sources: {a: {topic: ...}, b: {topic: ...}}",
    ),
    "a join without an equality": (
        query("SELECT COUNT(*) FROM t JOIN t AS u ON t.id > u.id"),
        "4:36",
        "a join needs an equality of its two sides",
        "ON a.k = b.k",
    ),
    "an order and a limit": (
        query("SELECT name, COUNT(*) AS n FROM t GROUP BY name ORDER BY n DESC LIMIT 5"),
        "4:65",
        "a changing result has no order",
        "retally results JOB --order=-n --limit=5, or ?order=-n&limit=5",
    ),
    "a limit": (
        query("SELECT name, COUNT(*) AS n FROM t GROUP BY name LIMIT 5"),
        "4:62",
        "LIMIT needs an order",
        "retally results JOB --limit=5, or ?limit=5",
    ),
    "a misspelled GROUP": (
        query("SELECT name, COUNT(*) AS n FROM t GRUOP BY name"),
        "4:42",
        "cannot read the query near 'GRUOP BY name'",
        "(try: GROUP BY)",
    ),
    "a misspelled WHERE": (
        query("SELECT COUNT(*) AS n FROM t WEHRE cnt > 3"),
        "4:36",
        "near 'WEHRE cnt > 3'",
        "(try: WHERE)",
    ),
    "a column that is not grouped": (
        query("SELECT id, name, COUNT(*) FROM t GROUP BY name"),
        "4:15",
        "neither in GROUP BY nor inside an aggregate",
        "(try: ",
    ),
    "a sum of texts": (query("SELECT SUM(name) FROM t"), "4:19", "SUM needs numbers", "CAST"),
    "an unknown function": (
        query("SELECT MEDIANN(cnt) FROM t"),
        "4:15",
        "unknown function MEDIANN",
        "(try: MEDIAN)",
    ),
    "a subquery": (
        query("SELECT name FROM t GROUP BY name HAVING EXISTS (SELECT 1)"),
        "4:63",
        "a subquery is only possible in FROM",
        "(try: a condition on columns,",
    ),
    "an INSERT": (query("INSERT INTO t SELECT 1"), "4:8", "not with 'INSERT'", "(try: SELECT k"),
    "a ranking": (
        query("SELECT ROW_NUMBER() OVER (PARTITION BY name) FROM t"),
        "4:15",
        "OVER (...) is not supported: a job has no order of rows",
        "(try: an aggregate with GROUP BY",
    ),
    "a latency of nothing": (
        HEAD + QUERY + "minibatch: {latency: 0s}\n",
        "5:13",
        "minibatch.latency",
        "must be greater than 0; write it like 5s",
    ),
    "a latency without a unit": (
        HEAD + QUERY + "minibatch: {latency: 5}\n",
        "5:13",
        "minibatch.latency",
        "5s",
    ),
}


@pytest.mark.parametrize("mistake", SPECS)
def test_a_mistake_in_a_spec_has_its_place_its_line_and_its_correction(
    retally: Retally, tmp_path: Path, mistake: str
) -> None:
    text, place, wrong, correction = SPECS[mistake]
    path = tmp_path / "items.yaml"
    path.write_text(text)
    code, out, err = retally("validate", str(path))
    assert (code, out) == (2, "")
    problem, *shown = err.splitlines()
    assert problem.startswith(f"{path}:{place}: "), err
    assert wrong in problem
    assert correction in problem
    assert len([each for each in err.splitlines() if str(path) in each]) == 1, "one mistake, once"
    if text:
        line, caret = shown
        number, column = map(int, place.split(":"))
        written = line.partition(" | ")[2]
        assert written == text.splitlines()[number - 1].replace("\t", " ")
        assert caret.partition(" | ")[2] == " " * (column - 1) + "^"


def test_a_long_line_is_cut_around_the_mistake(retally: Retally, tmp_path: Path) -> None:
    path = tmp_path / "items.yaml"
    many = ", ".join(f"SUM(cnt) AS s{n}" for n in range(30))
    path.write_text(query(f"SELECT {many}, MAX(count), {many} FROM t"))
    _, _, err = retally("validate", str(path))
    line, caret = err.splitlines()[1:3]
    assert len(line) <= 100
    assert line[caret.index("^") :].startswith("count")
    assert line.partition(" | ")[2].startswith("…")
    assert line.endswith("…")


def test_a_caret_stands_under_its_word_behind_wide_characters(
    retally: Retally, tmp_path: Path
) -> None:
    path = tmp_path / "items.yaml"
    path.write_text(query("SELECT COUNT(*) FILTER (WHERE name = '苹果\u202e' AND x > 1) FROM t"))
    _, _, err = retally("validate", str(path))
    line, caret = err.splitlines()[1:3]
    assert "\u202e" not in line
    assert line[caret.index("^") - 2 :].startswith("x > 1")  # two characters take a cell more each


USAGE: dict[str, tuple[str, str, str]] = {
    "rnu": ("retally: ", "there is no command 'rnu'", "did you mean run?"),
    "run spec.yaml --data d --brokres b:1": (
        "retally run: ",
        "there is no option --brokres",
        "did you mean --brokers?",
    ),
    "delete items": ("retally: ", "there is no command 'delete'", "did you mean jobs delete JOB?"),
    "lst": ("retally: ", "there is no command 'lst'", "did you mean jobs?"),
    "jobs rm items": ("retally jobs: ", "there is no choice 'rm'", "did you mean delete?"),
    "topics apply x": ("retally topics: ", "there is no choice 'apply'", "known: list, show"),
    "serve --data d --log-format xml": ("retally serve: ", "no choice 'xml'", "known: text, json"),
    "jobs stop items --label x": ("retally: ", "--label is for list only", "name of one job"),
    "jobs put nothing.yaml": ("retally: ", "there is no file nothing.yaml", "jobs put SPEC"),
    "jobs lst": ("retally jobs: ", "there is no choice 'lst'", "did you mean list?"),
    "run spec.yaml": ("retally run: ", "required: --data", "see retally run --help"),
    "results items more": ("retally results: ", "one argument too many: 'more'", "--help"),
    "broker --data d --port x": ("retally broker: ", "'x' is not a whole number", "0 or more"),
    "plan nothing.yaml": ("nothing.yaml: ", "cannot be read", "No such file"),
    "results items --time yesterday": ("retally results: ", "'yesterday'", "write it like 2026"),
    "results items --data d --service s": ("retally results: ", "not allowed with", "--data"),
    "jobs --service 127.0.0.1:1": ("retally: ", "is not an address", "write one like http://"),
    "jobs --service http://127.0.0.1:9": (
        "retally: ",
        "does not answer: Connection refused",
        "does retally serve run",
    ),
    "run {spec} --data d --brokers localhost": (
        "--brokers: ",
        "must be HOST:PORT",
        "as localhost:9092",
    ),
    "run {spec} --data d --connections {typo}": (
        "{typo}:1:11",
        "bootsrap",
        "did you mean 'bootstrap'?",
    ),
    "serve --data d --new-token a=boss": ("retally: ", "boss", "viewer, operator, admin"),
    "results items --data nothing": ("retally: ", "no job has run there", "check --data"),
}


@pytest.mark.parametrize("words", USAGE)
def test_a_mistake_in_the_arguments_has_its_correction(
    retally: Retally, tmp_path: Path, words: str
) -> None:
    where = {"spec": tmp_path / "spec.yaml", "typo": tmp_path / "connections.yaml"}
    where["spec"].write_text(HEAD + QUERY)
    where["typo"].write_text("default: {bootsrap: [a:1]}\n")
    start, wrong, correction = (each.format(**where) for each in USAGE[words])
    code, out, err = retally(*words.format(**where).split())
    assert code in (1, 2)
    assert out == ""
    assert err.startswith(start), err
    assert wrong in err
    assert correction in err
    assert len(err.splitlines()) == 1, "a sentence, and no list of options"


@pytest.mark.parametrize("table", [NEIGHBOURS, NEIGHBOUR_ACTIONS])
def test_a_word_of_another_tool_leads_to_a_command_that_there_is(table: dict[str, str]) -> None:
    parser = build_parser()
    for word, ours in table.items():
        first = "" if table is NEIGHBOURS else "jobs "
        words = (first + ours.replace("SELECT", "x")).lower().split()
        assert parser.parse_args(words).command == words[0], word
        with pytest.raises(SystemExit):
            parser.parse_args([*first.split(), word])


def test_no_word_at_all_and_help_print_the_help(capfd: pytest.CaptureFixture[str]) -> None:
    for words in ((), ("help",), ("--help",)):
        assert main(words) == 0
        assert "usage: retally" in capfd.readouterr().out
    assert main(("help", "jobs")) == 0
    assert "usage: retally jobs" in capfd.readouterr().out


def test_a_data_directory_that_cannot_be_used_is_named_before_anything_starts(
    retally: Retally, tmp_path: Path
) -> None:
    spec, taken = tmp_path / "spec.yaml", tmp_path / "taken"
    spec.write_text(HEAD + QUERY)
    taken.touch()
    for command in (f"run {spec}", "serve", "broker"):
        code, _, err = retally(*command.split(), "--data", str(taken))
        assert code == 1
        assert err == f"retally: {taken} is not a directory; name one with --data\n"
    code, _, err = retally(*f"run {spec}".split(), "--data", "/proc/nope")
    assert code == 1
    assert "/proc/nope" in err
    assert "Errno" not in err


def test_a_broker_that_is_not_there_is_named_within_seconds(
    retally: Retally, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.cli.commands.doctor.BROKER_SECONDS_MAX", 0.5)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)  # of a supervised job it is longer
    spec = tmp_path / "spec.yaml"
    spec.write_text(HEAD + QUERY)
    arguments = ("--data", str(tmp_path / "data"), "--brokers", "127.0.0.1:9")
    sentence = (
        "no answer from 127.0.0.1:9 (Connection refused); start a broker with retally broker, or "
        "name yours with --brokers, RETALLY_BROKERS or --connections"
    )
    code, _, err = retally("run", str(spec), *arguments)
    assert (code, err.splitlines()[-1]) == (1, f"retally: {sentence}")
    code, out, _ = retally("doctor", *arguments)
    assert (code, out.splitlines()[-1]) == (1, f"BAD broker: {sentence}")


@pytest.mark.slow
def test_a_missing_java_and_missing_jars_are_named_as_doctor_names_them(
    retally: Retally, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(HEAD + QUERY)
    run = ("run", str(spec), "--data", str(tmp_path / "data"), "--brokers", "127.0.0.1:9")
    monkeypatch.setenv("RETALLY_JARS", str(tmp_path / ".jars"))
    _, _, err = retally(*run)
    _, out, _ = retally("doctor", "--brokers", "127.0.0.1:9")
    assert f"BAD jars: {err.splitlines()[-1].removeprefix('retally: ')}" in out
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    java.cache_clear()
    _, _, err = retally(*run)
    _, out, _ = retally("doctor", "--brokers", "127.0.0.1:9")
    java.cache_clear()
    assert "no java in JAVA_HOME" in err
    assert f"BAD java: {err.splitlines()[-1].removeprefix('retally: ')}" in out


@pytest.mark.broker
def test_a_missing_topic_comes_with_those_that_are_there(
    retally: Retally, broker: Broker, tmp_path: Path
) -> None:
    spec = tmp_path / "spec.yaml"
    create_topic(broker.address, "shop-of-the-mistakes", 1)
    spec.write_text(HEAD.replace("shop", "shop-of-the-mistake") + QUERY)
    arguments = ("--data", str(tmp_path / "data"), "--brokers", broker.address)
    code, _, err = retally("run", str(spec), *arguments)
    assert code == 1
    assert "source topic 'shop-of-the-mistake' does not exist; create it or correct" in err
    assert "known topics: shop-of-the-mistakes" in err


def test_a_taken_port_and_a_taken_directory_say_whose_they_are(
    retally: Retally, tmp_path: Path
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, _, err = retally("serve", "--data", str(tmp_path), "--port", str(port))
    assert code == 1
    assert f"127.0.0.1:{port}: Address already in use; name another port with --port" in err
