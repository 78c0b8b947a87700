"""The set-up: quick when done, and it notices what is missing, in words that help."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.edge import jars
from jobs.edge.java import JavaMissing, install_launcher, java, use_own
from setup import install, java_trust
from setup.install import module_name

CHECKOUT = Path(__file__).resolve().parents[1]
NO_OP_SECONDS_MAX = 2
PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


def set_up(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [CHECKOUT / "setup" / "setup.sh"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def program(where: Path, name: str, script: str) -> Path:
    where.mkdir(parents=True, exist_ok=True)
    path = where / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of two small jars, complete."""
    for name in ("spark/delta-4.4.0.jar", "broker/kafka-4.3.1.jar"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(b"12345")
    jars.write_manifest(tmp_path, "key")
    monkeypatch.setenv("RETALLY_JARS", str(tmp_path))
    return tmp_path


@pytest.mark.skipif(
    (CHECKOUT / ".venv").is_symlink() or not (CHECKOUT / ".venv" / "setup.stamp").exists(),
    reason="make setup has not run here",
)
def test_a_second_set_up_takes_no_time() -> None:
    began = time.monotonic()
    done = set_up()
    assert done.stdout == "setup: everything is in place\n"
    assert time.monotonic() - began < NO_OP_SECONDS_MAX


def test_an_environment_of_another_checkout_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = tmp_path / "theirs"
    (theirs / "lib").mkdir(parents=True)
    (tmp_path / ".venv").symlink_to(theirs)
    monkeypatch.setattr(install, "VENV", tmp_path / ".venv")
    with pytest.raises(install.SetupFailed, match="is a link"):
        install.make_environment()
    assert (theirs / "lib").is_dir()


def test_without_python_it_says_what_to_install(tmp_path: Path) -> None:
    done = set_up(PYTHON=str(program(tmp_path, "python", "exit 1")))
    assert done.returncode == 1
    assert "no Python 3.11 or newer found" in done.stderr


@pytest.fixture
def old_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A machine that only has a Java 8, and a directory of jars of its own."""
    program(tmp_path / "bin", "java", """echo 'openjdk version "1.8.0_392"' >&2""")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("RETALLY_JARS", str(tmp_path / "here" / ".jars"))
    java.cache_clear()
    yield tmp_path
    java.cache_clear()


def test_an_old_java_is_refused(old_java: Path) -> None:
    with pytest.raises(JavaMissing, match="is Java 8: install"):
        java()


def test_where_java_cannot_be_installed_it_says_what_to_do(
    old_java: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """tests/pipeline/test_without_java.py has the case in which it can."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(install.SetupFailed, match=r"Java failed .*; install a JDK or JRE 17"):
        install.install_java()
    assert "bin/java is Java 8: installing one" in capsys.readouterr().out


def test_an_own_java_is_used_where_the_machine_has_none(old_java: Path) -> None:
    runtime = old_java / "here" / ".java" / "wheel" / "java-runtime"
    echo = """[ "$3" = -version ] && echo 'version "25.0.2"' >&2 || echo "$@" """
    program(runtime / "bin", "java", echo)
    install_launcher(old_java / "here" / ".java", runtime)
    assert java() == old_java / "here" / ".java" / "bin" / "java"
    arguments = ["-cp", "a b.jar", "--add-modules=jdk.incubator.vector", "Main", "it's", ""]
    said = subprocess.run([java(), *arguments], capture_output=True, text=True, check=True).stdout
    added = "--enable-native-access=ALL-UNNAMED --sun-misc-unsafe-memory-access=allow"
    assert said == f"{added} -cp a b.jar Main it's \n"
    use_own()
    assert os.environ["JAVA_HOME"] == str(old_java / "here" / ".java")


def test_an_own_java_trusts_whom_the_machine_trusts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Java's own tool reads the key store that is written for it."""
    keytool = shutil.which("keytool", path=f"{java().parent}{os.pathsep}{os.environ['PATH']}")
    if keytool is None:
        pytest.skip("there is no keytool to read it with")
    bundle = java_trust.machine_bundle()
    assert bundle is not None
    first, second = re.findall(r"-----BEGIN.+?-----END CERTIFICATE-----", bundle.read_text(), re.S)[
        :2
    ]
    (tmp_path / "bundle.pem").write_text(f"# a company\n{first}\n\n{second}\n")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "bundle.pem"))
    store = tmp_path / "lib" / "security" / "cacerts"
    store.parent.mkdir(parents=True)
    java_trust.trust_the_machine(tmp_path)
    told = subprocess.run(
        [keytool, "-list", "-rfc", "-keystore", store, "-storepass", "changeit"],
        capture_output=True, text=True, check=False,
    ).stdout  # fmt: skip
    shown = PEM.findall(told)
    assert ["".join(each.split()) for each in shown] == [
        "".join(each.split()) for each in (first, second)
    ], told


def test_the_machine_s_own_java_is_preferred(
    old_java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(old_java / "here" / ".java" / "bin", "java", "exit 0")
    program(old_java / "bin", "java", """echo 'openjdk version "21.0.4"' >&2""")
    assert java() == old_java / "bin" / "java"
    use_own()
    assert os.environ["JAVA_HOME"] == str(old_java)


def test_jars_are_found_by_their_kind(fetched: Path) -> None:
    assert jars.spark_jars() == [fetched / "spark" / "delta-4.4.0.jar"]
    assert jars.broker_classpath() == str(fetched / "broker" / "kafka-4.3.1.jar")
    assert jars.fetched_key() == "key"


def test_a_jar_cut_short_is_noticed(fetched: Path) -> None:
    (fetched / "spark" / "delta-4.4.0.jar").write_bytes(b"123")
    with pytest.raises(jars.JarsMissing, match=r"delta-4.4.0.jar is missing or cut short"):
        jars.spark_jars()
    assert jars.fetched_key() is None


def test_jars_without_a_manifest_are_not_taken(fetched: Path) -> None:
    (fetched / "manifest.json").unlink()
    with pytest.raises(jars.JarsMissing, match="run make setup"):
        jars.broker_classpath()


def test_without_an_archive_of_classes_the_set_up_goes_on(
    fetched: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tried: list[list[str]] = []

    def refused(command: list[str], what: str) -> None:
        tried.append(command)
        raise install.SetupFailed(f"{what} failed")

    monkeypatch.setattr(install, "run", refused)
    for _ in range(2):
        install.archive_classes()
    assert "archive of classes failed; jobs start without it" in capsys.readouterr().out
    assert len(tried) == 1, "what does not work with this Java is not tried each time"
    monkeypatch.setattr(install, "build_of", lambda _: "another Java")
    install.archive_classes()
    assert len(tried) == 2


def test_no_jar_is_given_to_spark_in_a_second_version() -> None:
    pyspark = pytest.importorskip("pyspark")
    shipped = {module_name(jar.name) for jar in Path(pyspark.__file__).parent.glob("jars/*.jar")}
    ours = [module_name(jar.name) for jar in jars.spark_jars()]
    assert "delta-spark_4.2_2.13" in ours
    assert not shipped.intersection(ours)
    assert len(set(ours)) == len(ours)


def test_the_manifest_is_readable_by_people(fetched: Path) -> None:
    manifest = json.loads((fetched / jars.MANIFEST).read_text())
    assert manifest["bytes"] == {"broker/kafka-4.3.1.jar": 5, "spark/delta-4.4.0.jar": 5}
    shutil.rmtree(fetched)
    assert jars.fetched_key() is None


def test_without_a_browser_and_apt_it_says_what_to_install(tmp_path: Path) -> None:
    done = subprocess.run(
        ["/bin/sh", CHECKOUT / "setup" / "setup_browser.sh"],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "install Chromium as this system does it" in done.stderr


def test_a_browser_that_is_there_is_left_alone(tmp_path: Path) -> None:
    found = program(tmp_path, "chromium", "exit 1")
    done = subprocess.run(
        ["/bin/sh", CHECKOUT / "setup" / "setup_browser.sh"],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"setup-browser: {found} is in place\n"
