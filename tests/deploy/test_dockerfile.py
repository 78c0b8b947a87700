"""The Dockerfile: pinned, in stages, without root at the end, with nothing to build with."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.deploy.deployment import (
    CHECKOUT,
    Instruction,
    composed,
    dockerfile,
    image_environment,
    settings,
)

ALL = dockerfile()
LAST = [each for each in ALL if each.stage == ALL[-1].stage]


def every(word: str, among: list[Instruction] = ALL) -> list[Instruction]:
    return [each for each in among if each.word == word]


def test_bases_are_pinned_and_the_same_in_both_stages() -> None:
    """A virtual environment knows the Python that it was made of by its place."""
    bases = [each.words[0] for each in every("FROM")]
    assert len(bases) > 1
    assert set(bases) == {"${BASE}"}
    assert re.fullmatch(r"python:\d+\.\d+\.\d+-slim-[a-z]+@sha256:[0-9a-f]{64}", base())


def base() -> str:
    """The image that both stages begin with, where the build names no other."""
    (argument,) = every("ARG")
    name, _, image = argument.text.partition("=")
    assert name == "BASE"
    return image


def test_python_and_java_are_versions_that_the_tests_run_on() -> None:
    version = base().split(":")[1].rpartition(".")[0]
    assert version in image_environment()["SPARK_HOME"]
    wanted = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["requires-python"]
    assert version == wanted.removeprefix(">=")
    assert "jdk" not in " ".join(_installed()), "the set-up installs the Java that its test runs on"


def _installed() -> list[str]:
    return [each.text for each in every("RUN") if "apt-get install" in each.text]


def test_the_last_stage_builds_nothing() -> None:
    runs = " ".join(each.text for each in every("RUN", LAST))
    assert not re.search(r"\b(gcc|g\+\+|make|build-essential|git|curl|wget|pip|jdk)\b", runs)
    assert every("COPY", LAST)
    assert all(each.words[0].startswith("--from=build") for each in every("COPY", LAST))


def test_package_lists_do_not_stay_and_nothing_unasked_comes() -> None:
    for text in _installed():
        assert "--no-install-recommends" in text
        assert "rm -rf /var/lib/apt/lists/*" in text


def test_nothing_is_fetched_beside_the_set_up() -> None:
    assert not every("ADD")
    assert "setup/setup.sh --runtime" in " ".join(each.text for each in every("RUN"))


def test_an_edit_of_a_document_installs_nothing_again() -> None:
    build = [each.text for each in ALL if each.stage != ALL[-1].stage]
    (installs,) = (at for at, text in enumerate(build) if "setup/setup.sh" in text)
    assert build.index("docs/ docs/") > installs


def test_what_is_copied_into_the_last_stage_says_whose_it_is() -> None:
    assert all("--chown=" in each.text for each in every("COPY", LAST))


def test_the_program_is_not_its_user_s() -> None:
    """So that it cannot change its own code."""
    assert [each.words[1] for each in every("COPY", LAST)] == ["--chown=root:root"]


def test_the_last_user_is_not_root() -> None:
    (user,) = every("USER", LAST)
    assert user.text.split(":")[0] not in ("0", "root")
    after = LAST[LAST.index(user) :]
    assert not [each for each in after if each.word in ("RUN", "COPY")]
    uid, gid = user.text.split(":")
    done = " ".join(each.text for each in every("RUN", LAST))
    assert f"--uid {uid} --gid {gid}" in done
    assert f"groupadd --system --gid {gid}" in done


def test_signals_reach_the_program_and_its_health_is_checked() -> None:
    (entry,) = every("ENTRYPOINT", LAST)
    assert entry.words[:2] == ["/usr/bin/tini", "--"]
    assert every("CMD", LAST)[-1].text.startswith("[")
    assert len(every("HEALTHCHECK", LAST)) == 1


def test_a_container_begins_without_the_shuffle_files_of_a_crash(tmp_path: Path) -> None:
    (entry,) = every("ENTRYPOINT", LAST)
    left = tmp_path / "spark" / "spark-0123"
    left.mkdir(parents=True)
    shell = [word.replace("/cache/spark", str(left.parent)) for word in entry.words[2:]]
    for _ in range(2):  # the second time there is nothing to remove
        done = subprocess.run([*shell, "echo", "a b", "c"], capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (0, "a b c\n")
        assert list(left.parent.iterdir()) == []
    assert composed()["services"]["spark-worker"]["environment"]["SPARK_LOCAL_DIRS"] == (
        "/cache/spark"
    )


def test_no_secret_is_asked_for() -> None:
    assert [each.text.partition("=")[0] for each in every("ARG")] == ["BASE"]
    assert not [name for name in image_environment() if re.search("PASS|SECRET|TOKEN", name)]


def test_the_version_is_that_of_the_package() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    assert settings()["RETALLY_VERSION"] == project["version"]
    assert composed()["services"]["service"]["image"].endswith(f":{project['version']}")


def test_what_is_copied_is_there_and_let_through() -> None:
    ignored = (CHECKOUT / ".dockerignore").read_text().splitlines()
    allowed = {line[1:] for line in ignored if line.startswith("!")}
    assert "*" in ignored
    copied = {each.words[0].rstrip("/") for each in every("COPY") if each.stage == 0}
    assert copied == allowed
    assert all((CHECKOUT / name).exists() for name in copied)


def test_the_image_has_every_package_that_the_wheel_has() -> None:
    tool = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["tool"]
    packages = {name.rstrip("*") for name in tool["setuptools"]["packages"]["find"]["include"]}
    copied = {each.words[0].rstrip("/") for each in every("COPY") if each.stage == 0}
    assert packages <= copied


@pytest.mark.skipif(sys.platform != "linux", reason="paths as in the image")
def test_the_environment_is_that_of_the_place_of_the_checkout() -> None:
    (place,) = {each.text for each in every("WORKDIR") if each.stage == 0}
    environment = image_environment()
    assert environment["PATH"].startswith(f"{place}/.venv/bin:")
    assert environment["PYTHONPATH"] == place
    assert environment["SPARK_HOME"].startswith(f"{place}/.venv/lib/")
    assert environment["JAVA_HOME"] == f"{place}/.java"
    assert [each.words[-2:] for each in every("COPY", LAST)] == [[place, place]]
