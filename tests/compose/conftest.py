"""An engine, the images and the repository, once for all tests; at the end nothing is left."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.edge.machine import jars
from tests.compose.engine import ADVICE, Engine, find_engine
from tests.compose.stack import PROJECT, Stack, prepared, publish_copy
from tests.compose.stand_ins import Images, find_bases
from tests.deploy.deployment import CHECKOUT, DOCKERFILE, settings


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    tools = CHECKOUT / "build" / "compose"
    tools.mkdir(parents=True, exist_ok=True)
    found = find_engine(tools)
    if found is None:
        pytest.skip(ADVICE)
    before = _left(found)
    yield found
    after = _left(found)
    for kind, names in after.items():
        assert names <= before[kind], f"left behind, {kind}: {names - before[kind]}"


def _left(engine: Engine) -> dict[str, set[str]]:
    """What must not be more after the tests."""
    return {
        "containers": set(engine.docker("ps", "--all", "--quiet").split()),
        "networks": set(engine.docker("network", "ls", "--quiet").split()),
        "volumes": set(engine.docker("volume", "ls", "--quiet").split()),
        "dangling images": set(
            engine.docker("image", "ls", "--quiet", "--filter", "dangling=true").split()
        ),
    }


@pytest.fixture(scope="session")
def images(engine: Engine) -> Images:
    base = re.search(r"^ARG BASE=(.*)$", DOCKERFILE.read_text(), re.MULTILINE)
    assert base is not None
    found = find_bases(engine, base[1], settings()["KAFKA_IMAGE"], jars.directory() / "broker")
    where = "the published bases" if found.published else "stand-ins for both bases"
    print(f"\nengine {engine.version}, {where}")
    return found


@pytest.fixture(scope="session")
def upstream(engine: Engine, images: Images, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository of the page's reader; no image of it is there, so that `up` builds it."""
    repository = tmp_path_factory.mktemp("upstream") / "retally"
    publish_copy(repository, images)
    for name in engine.docker("image", "ls", "--quiet", PROJECT).split():
        engine.docker("rmi", "--force", name, check=False)
    return repository


@pytest.fixture
def stack(engine: Engine, upstream: Path, tmp_path: Path) -> Iterator[Stack]:
    with prepared(engine, upstream, tmp_path / "retally") as found:
        yield found
