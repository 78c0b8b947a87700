"""The set-up: quick if everything exists, and with helpful errors if something is missing."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.edge.machine import jars
from jobs.edge.machine.java import JavaMissing, install_launcher, java, use_found_java
from jobs.setup import locked, steps
from setup import checkout, install
from setup.lock import module_name
from setup.packages import locked_packages
from tests.support.sampling import quick

CHECKOUT = Path(__file__).resolve().parents[2]
NO_OP_SECONDS_MAX = 2
ENVIRONMENT = install.environment()
PYTHON = ENVIRONMENT.python
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
    """A complete directory of two small jars."""
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
    before = processor_seconds()
    done = set_up()
    assert done.stdout == "setup: everything is in place\n"
    assert processor_seconds() - before < NO_OP_SECONDS_MAX


def processor_seconds() -> float:
    """Return what processes that have ended used: of a clock, a busy machine takes its part too."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime


def test_an_environment_of_another_checkout_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = tmp_path / "theirs"
    (theirs / "lib").mkdir(parents=True)
    (tmp_path / ".venv").symlink_to(theirs)
    monkeypatch.setattr(install, "VENV", tmp_path / ".venv")
    with pytest.raises(steps.SetupFailed, match="is a link"):
        install.make_environment()
    assert (theirs / "lib").is_dir()


def test_without_python_it_says_what_to_install(tmp_path: Path) -> None:
    done = set_up(PYTHON=str(program(tmp_path, "python", "exit 1")))
    assert done.returncode == 1
    assert "no Python 3.11 or newer found" in done.stderr


@pytest.fixture
def old_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A machine with only Java 8, and with its own directory of jars."""
    program(tmp_path / "bin", "java", """echo 'openjdk version "1.8.0_392"' >&2""")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    # Set here, so that it is restored: a test may set it, and later JVMs would be this program.
    monkeypatch.setenv("RETALLY_JAVA_COMMAND", "")
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
    """tests/jobs/running/test_without_java.py tests the opposite case."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(steps.SetupFailed, match=r"Java failed .*; install a JDK or JRE 17"):
        steps.install_java(ENVIRONMENT)
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
    use_found_java()
    assert os.environ["JAVA_HOME"] == str(old_java / "here" / ".java")


def test_an_own_java_trusts_whom_the_machine_trusts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java's own tool reads the key store."""
    keytool = shutil.which("keytool", path=f"{java().parent}{os.pathsep}{os.environ['PATH']}")
    if keytool is None:
        pytest.skip("there is no keytool to read it with")
    bundle = steps.find_machine_bundle()
    assert bundle is not None
    first, second = re.findall(r"-----BEGIN.+?-----END CERTIFICATE-----", bundle.read_text(), re.S)[
        :2
    ]
    (tmp_path / "bundle.pem").write_text(f"# a company\n{first}\n\n{second}\n")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "bundle.pem"))
    store = tmp_path / "lib" / "security" / "cacerts"
    store.parent.mkdir(parents=True)
    steps.import_machine_certificates(tmp_path)
    listing = subprocess.run(
        [keytool, "-list", "-rfc", "-keystore", store, "-storepass", "changeit"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    shown = PEM.findall(listing)
    assert ["".join(each.split()) for each in shown] == [
        "".join(each.split()) for each in (first, second)
    ], listing


def test_the_machine_s_own_java_is_preferred(
    old_java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(old_java / "here" / ".java" / "bin", "java", "exit 0")
    program(old_java / "bin", "java", """echo 'openjdk version "21.0.4"' >&2""")
    assert java() == old_java / "bin" / "java"


def test_spark_starts_the_machine_s_java_without_its_warning_of_an_incubator(
    old_java: Path,
) -> None:
    echo = """[ "$1" = -version ] && echo 'version "21.0.4"' >&2 || echo "$@" """
    program(old_java / "bin", "java", echo)
    use_found_java()
    command = Path(os.environ["JAVA_HOME"], "bin", "java")
    arguments = ["-cp", "a b.jar", "--add-modules=jdk.incubator.vector", "Main", "it's", ""]
    said = subprocess.run([command, *arguments], capture_output=True, text=True, check=True).stdout
    assert said == "-cp a b.jar Main it's \n"
    java.cache_clear()
    assert java() == command, "a child process finds the same Java"
    use_found_java()
    assert os.environ["RETALLY_JAVA_COMMAND"] == str(old_java / "bin" / "java")


def test_the_launcher_of_another_installation_starts_java_and_not_itself(
    old_java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A retally that another one has started inherits its JAVA_HOME."""
    program(old_java / "bin", "java", "echo 'version \"21.0.4\"' >&2")
    other = old_java / "other" / "quiet_java"
    shutil.copytree(CHECKOUT / "jobs/edge/machine/quiet_java", other)
    monkeypatch.setenv("JAVA_HOME", str(other))
    monkeypatch.setenv("RETALLY_JAVA_COMMAND", str(old_java / "bin" / "java"))
    use_found_java()
    assert os.environ["RETALLY_JAVA_COMMAND"] == str(old_java / "bin" / "java")
    command = Path(os.environ["JAVA_HOME"], "bin", "java")
    done = subprocess.run([command, "-version"], capture_output=True, timeout=20, check=True)
    assert b"21.0.4" in done.stderr


def test_jars_are_found_by_their_kind(fetched: Path) -> None:
    assert jars.spark_jars() == [fetched / "spark" / "delta-4.4.0.jar"]
    assert jars.broker_classpath() == str(fetched / "broker" / "kafka-4.3.1.jar")
    assert jars.fetched_key() == "key"


def test_a_jar_cut_short_is_noticed(fetched: Path) -> None:
    (fetched / "spark" / "delta-4.4.0.jar").write_bytes(b"123")
    with pytest.raises(jars.JarsMissing, match=r"delta-4.4.0.jar is missing or incomplete"):
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
        raise steps.SetupFailed(f"{what} failed")

    monkeypatch.setattr(steps, "run", refused)
    for _ in range(2):
        steps.archive_classes(ENVIRONMENT)
    assert "archive of classes failed; jobs start without it" in capsys.readouterr().out
    assert len(tried) == 1, "what does not work with this Java is not tried each time"
    monkeypatch.setattr(steps, "read_build", lambda _: "another Java")
    steps.archive_classes(ENVIRONMENT)
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


def wheel(where: Path, name: str, version: str, code: str = "") -> Path:
    """Build a wheel as on a mirror."""
    information = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": code,
        f"{information}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{information}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{information}/RECORD": "",
    }
    where.mkdir(exist_ok=True)
    path = where / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)
    return path


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of wheels, the only package source for pip."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "mirror"))
    return tmp_path / "mirror"


@pytest.fixture(params=["pip", "uv"])
def by(request: pytest.FixtureRequest, mirror: Path) -> list[str]:
    """What installs; both look only at the mirror, because pip is set so."""
    if request.param == "pip":
        return steps.pip(PYTHON)
    if not (install.VENV / "bin" / "uv").exists():
        pytest.skip("make setup has not run here")
    return install.uv()


@pytest.mark.parametrize("section", quick(["build", "java", "lock"], ["java"]))
def test_a_tampered_wheel_is_refused(
    mirror: Path, by: list[str], section: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The wheel has the right name and version, and the lock file is the real one."""
    (package,) = locked_packages(section)
    wheel(mirror, package.name, package.version)
    site = ["--target", str(tmp_path / "site")]
    with pytest.raises(steps.SetupFailed, match="it failed with exit code 1"):
        steps.install_locked(section, options=site, what="it", by=by)
    said = capsys.readouterr().err
    assert "DO NOT MATCH THE HASHES" in said or "Hash mismatch" in said
    assert not list((tmp_path / "site").glob("*.py")) if (tmp_path / "site").exists() else True


def test_a_wheel_with_the_hash_of_the_lock_is_installed(
    mirror: Path, by: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sha256 = locked.sha256(wheel(mirror, "ours", "1.0", "WORD = 1"))
    monkeypatch.setattr(locked, "PACKAGES", tmp_path / "requirements.lock")
    locked.PACKAGES.write_text(f"# --- java\nours==1.0 \\\n    --hash=sha256:{sha256}\n")
    site = ["--target", str(tmp_path / "site")]
    steps.install_locked("java", options=site, what="it", by=by)
    assert (tmp_path / "site" / "ours.py").read_text() == "WORD = 1"
    wheel(mirror, "ours", "1.0", "WORD = 2")
    with pytest.raises(steps.SetupFailed):
        steps.install_locked("java", options=[*site, "--force-reinstall"], what="it", by=by)
    assert (tmp_path / "site" / "ours.py").read_text() == "WORD = 1"


def test_packages_come_from_the_lock_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call of pip or uv requires hashes, or installs only this checkout."""
    called: list[list[str]] = []
    monkeypatch.setattr(install, "STAMP", tmp_path / "stamp")
    for module in (steps, install):
        monkeypatch.setattr(module, "run", lambda command, what, advice="": called.append(command))
    install.install_packages(install.missing_sections("all"), "all")
    *packages, ourselves = called
    assert all({"--require-hashes", "--no-deps"} <= set(each) for each in packages)
    assert ourselves[-2:] == ["-e", str(CHECKOUT)]
    for each in called:
        assert "--no-build-isolation" in each, "a build would fetch a backend that nobody locked"
    assert {"--no-deps", "-e"} <= set(ourselves)


@pytest.mark.parametrize(
    ("installed", "kind", "missing"),
    [
        ("", "all", ("build", "runtime", "otel", "dev")),
        ("", "user", ("build", "runtime")),
        ("user", "user", ()),
        ("user", "all", ("otel", "dev")),
        ("all", "user", ()),
        ("all", "runtime", ("build", "runtime")),
        ("runtime", "user", ("build", "runtime")),
    ],
)
def test_the_tools_of_tests_are_added_to_what_a_user_has(
    installed: install.Kind,
    kind: install.Kind,
    missing: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(install, "STAMP", tmp_path / "stamp")
    install.STAMP.write_text(install.packages_key(installed) if installed else "")
    assert install.missing_sections(kind) == missing


def test_uv_looks_where_pip_is_set_to_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip_conf = tmp_path / "pip.conf"
    pip_conf.write_text(
        "[global]\nindex-url = https://u:p@here/simple\ntrusted-host = here there\ncert = /ours\n"
        "[install]\nextra-index-url = https://there/simple\n"
    )
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(pip_conf))
    monkeypatch.setenv("PIP_CERT", "/mine")
    expected = [
        "--default-index=https://u:p@here/simple",
        "--index=https://there/simple",
        "--allow-insecure-host=here",
        "--allow-insecure-host=there",
        "--cert=/mine",
    ]
    assert install.places(PYTHON) == expected
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert install.places(PYTHON) == ["--no-index", *expected]


def test_a_stale_lock_stops_the_set_up_before_it_does_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = tmp_path / "pyproject.toml"
    kept = checkout.PYPROJECT.read_text()
    changed.write_text(kept.replace('"rich>=', '"rich!=15.0.1,>='))
    assert changed.read_text() != kept
    monkeypatch.setattr(checkout, "PYPROJECT", changed)
    monkeypatch.setattr(install, "VENV", tmp_path / ".venv")
    assert install.main() == 1
    assert "requirements.lock is not current for pyproject.toml" in (
        said := capsys.readouterr().err
    )
    assert "run make lock" in said
    assert not (tmp_path / ".venv").exists()


IVY_SETTINGS = """<ivysettings><settings defaultResolver="here"/>
<caches defaultCacheDir="{cache}"/>
<resolvers><filesystem name="here" m2compatible="true">
<artifact pattern="{mirror}/[organisation]/[artifact]/[revision]/[artifact]-[revision].[ext]"/>
</filesystem></resolvers></ivysettings>"""


@pytest.fixture
def mirror_of_jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with two jars, their lock, and an empty directory of jars."""
    mirror, settings = tmp_path / "mirror", tmp_path / "settings.xml"
    settings.write_text(IVY_SETTINGS.format(cache=tmp_path / "cache", mirror=mirror))
    monkeypatch.setenv("RETALLY_IVY_SETTINGS", str(settings))
    monkeypatch.setenv("RETALLY_JARS", str(tmp_path / ".jars"))
    monkeypatch.setattr(locked, "JARS", tmp_path / "JARS")
    found = []
    for jar in (
        locked.Jar("spark", "org.ours", "part", "1.0", ""),
        locked.Jar("broker", "org.ours", "server", "2.0", ""),
    ):
        path = mirror / "org/ours" / jar.artifact / jar.version / jar.file
        path.parent.mkdir(parents=True)
        path.write_text(jar.artifact)
        found.append(replace(jar, sha256=locked.sha256(path)))
    checkout.write_jars(found)
    return mirror


@pytest.mark.spark
def test_a_tampered_jar_is_refused(mirror_of_jars: Path, tmp_path: Path) -> None:
    (mirror_of_jars / "org/ours/server/2.0/server-2.0.jar").write_text("SERVER")
    with pytest.raises(
        steps.SetupFailed, match=r"these jars differ from JARS: broker/server-2.0.jar"
    ):
        steps.fetch_jars(ENVIRONMENT)
    assert not (tmp_path / ".jars").exists()
    assert not (tmp_path / ".jars.partial").exists()


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.usefixtures("mirror_of_jars")
def test_a_jar_that_was_changed_later_is_fetched_again(tmp_path: Path) -> None:
    steps.fetch_jars(ENVIRONMENT)
    assert steps.has_jars(ENVIRONMENT)
    jar = tmp_path / ".jars" / "spark" / "part-1.0.jar"
    jar.write_bytes(b"PART")
    assert not steps.has_jars(ENVIRONMENT)
    kernel = tmp_path / ".jars" / "kernels" / "compiled"  # at the same time
    kernel.parent.mkdir()
    kernel.touch()
    steps.fetch_jars(ENVIRONMENT)
    assert jar.read_bytes() == b"part"
    assert kernel.exists()


@pytest.mark.slow
@pytest.mark.spark
def test_where_no_jar_can_be_fetched_it_says_what_to_do(
    mirror_of_jars: Path, tmp_path: Path
) -> None:
    shutil.rmtree(mirror_of_jars / "org/ours/part")
    with pytest.raises(steps.SetupFailed, match=r"JVM jars failed.*in RETALLY_IVY_SETTINGS"):
        steps.fetch_jars(ENVIRONMENT)
    assert not (tmp_path / ".jars").exists()


def test_without_a_browser_and_apt_it_says_what_to_install(tmp_path: Path) -> None:
    done = subprocess.run(
        ["/bin/sh", CHECKOUT / "setup" / "setup_browser.sh"],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "install Chromium with your package manager" in done.stderr


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
