"""What the deployment brought along: the probe, the demo's source, a host's own cache."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import islice
from pathlib import Path

import pytest

from jobs.demo.shop import Shop
from jobs.demo.source import make_changes
from jobs.edge.machine import jars
from jobs.setup import steps
from schemas.directory.paths import JobDirectory, on_this_host
from service import probe
from setup import install
from tests.support.service.job_answers import without_moments

PARTITIONS = 4


class _Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/good" else 503)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), _Answers) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


def test_a_probe_is_0_for_200_only(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # Docker hands its own on
    assert probe.main(f"{server}/good") == 0
    assert probe.main(f"{server}/bad") == 1
    assert probe.main("http://127.0.0.1:9/good") == 1


@pytest.mark.parametrize("there", [0, 3, 40, 700])
def test_a_source_that_comes_back_sends_what_the_topic_lacks(there: int) -> None:
    whole = [m for m in islice(make_changes(Shop(7, PARTITIONS), {}), 1_500) if m]
    assert len(whole) == 1_500
    # What was on its way to partition 2 when the source was killed is not there.
    kept: dict[int, list[tuple[int, bytes]]] = {p: [] for p in range(PARTITIONS)}
    for message in whole[:there]:
        kept[message[0]].append(message)
    kept[2] = kept[2][:-1]
    ends = {partition: len(messages) for partition, messages in kept.items()}
    again = [m for m in islice(make_changes(Shop(7, PARTITIONS), ends), 1_500) if m]
    for partition in range(PARTITIONS):
        now = kept[partition] + [m for m in again if m[0] == partition]
        assert without_moments(now) == without_moments([m for m in whole if m[0] == partition])


def test_a_host_keeps_its_cache_where_it_is_told_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RETALLY_CACHE", raising=False)
    place = JobDirectory(tmp_path, "items")
    told = place.hot_state("an id")
    assert told.parent == tmp_path / "cache" / "items" and on_this_host(told) == told
    monkeypatch.setenv("RETALLY_CACHE", "/cache/state")
    assert on_this_host(told) == Path("/cache/state/items") / told.name
    assert on_this_host(told) == place.hot_state("an id") == on_this_host(on_this_host(told))


def test_tables_of_jobs_of_one_name_keep_their_hot_states_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RETALLY_CACHE", str(tmp_path / "cache"))
    place, other = JobDirectory(tmp_path / "a", "items"), JobDirectory(tmp_path / "b", "items")
    made_anew, a_copy = place.hot_state("another id"), other.hot_state("an id")
    assert len({place.hot_state("an id"), made_anew, a_copy, place.shadow.hot_state("an id")}) == 4


def test_a_set_up_for_an_image_is_another_one() -> None:
    assert install.packages_key("runtime") != install.packages_key()
    full, runtime = install.environment(), install.environment(runtime=True)
    assert steps.jars_key(runtime) != steps.jars_key(full)


def test_without_the_broker_s_jars_it_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jars.write_manifest(tmp_path, "key")
    monkeypatch.setenv("RETALLY_JARS", str(tmp_path))
    with pytest.raises(jars.JarsMissing, match="without the embedded broker: run make setup"):
        jars.broker_classpath()
