"""retally as users install it: wheels in an environment of their own, and no checkout.

The environment has the packages of this checkout by hard links, and the user's cache has its jars,
so that nothing is downloaded. The commands cannot write to the environment: its directories are
read-only, and root gives up the right to write there all the same.
"""

from __future__ import annotations

import email
import os
import pty
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.message import Message
from functools import partial
from importlib import metadata
from pathlib import Path
from tempfile import mkdtemp

import pytest
from packaging.requirements import Requirement

from jobs.edge.machine import jars
from setup.wheel import PARENT, build
from tests.support.service.served import Served
from tests.support.service.tables import WatchedTable

pytestmark = pytest.mark.costly("environments of their own, in which kernels are compiled anew")

CHECKOUT = Path(__file__).resolve().parents[2]
WITHOUT_RIGHTS = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search")
AREAS = ("jobs", "schemas", "service", "docs")
# What a user may have, in the working directory and in the environment, by our packages' names.
FOREIGN = ("jobs.py", "service/__init__.py", "schemas.py")


def build_wheels(where: Path, more: Mapping[str, str] | None = None) -> tuple[Path, Path]:
    """Build the engine's and the client's wheels of a copy, because a build writes into it.

    `more` is text to append to files, which makes another version of them.
    """
    source = where / "source"
    for name in (*AREAS, "client", "pyproject.toml", "README.md"):
        if (CHECKOUT / name).is_dir():
            skipped = shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
            shutil.copytree(CHECKOUT / name, source / name, ignore=skipped)
        else:
            shutil.copy2(CHECKOUT / name, source / name)
    for name, text in (more or {}).items():
        with (source / name).open("a") as file:
            file.write(text)
    build(source, where / "wheel")
    (engine,) = (where / "wheel").glob("retally-*.whl")
    (client,) = (where / "wheel").glob("retally_client-*.whl")
    return engine, client


def packed_files(wheel: Path) -> dict[str, int]:
    """Return the files of a wheel, without its metadata, with their modes."""
    with zipfile.ZipFile(wheel) as archive:
        return {
            each.filename: each.external_attr >> 16
            for each in archive.infolist()
            if ".dist-info/" not in each.filename
        }


def files_of(*folders: Path) -> set[str]:
    found = (path for folder in folders for path in folder.rglob("*") if path.is_file())
    return {
        str(path.relative_to(folders[0].parent))
        for path in found
        if path.parent.name != "__pycache__"
    }


def test_the_wheels_have_every_file_of_the_product_and_no_other(tmp_path: Path) -> None:
    engine, client = build_wheels(tmp_path)
    packed = packed_files(engine)
    ours = files_of(*(CHECKOUT / area for area in AREAS))
    assert set(packed) == {f"{PARENT}/{name}" for name in (*ours, "__init__.py")}
    assert set(packed_files(client)) == files_of(CHECKOUT / "client" / "retally")
    (needed,) = [each for each in requirements(engine) if each.startswith("retally")]
    assert needed.replace("retally-client==", "retally_client-") in client.name
    launcher = f"{PARENT}/jobs/edge/machine/quiet_java/bin/java"
    assert packed[launcher] & 0o111, "pip keeps the mode of a program"
    about = read_metadata(engine)
    assert about["Description-Content-Type"] == "text/markdown"
    assert set(about.get_all("Provides-Extra", [])) == {"java", "otel"}, "no tools of developers"


@dataclass(frozen=True, slots=True)
class Installed:
    """An environment with the wheel, its user's home, and a working directory of the user."""

    environment: Path
    home: Path
    work: Path

    def __call__(self, *arguments: str, seconds: int = 60) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*rights(), self.environment / "bin" / "retally", *arguments],
            cwd=self.work,
            env={"HOME": str(self.home), "PATH": os.environ["PATH"], **java_home()},
            capture_output=True,
            text=True,
            timeout=seconds,
            stdin=subprocess.DEVNULL,
        )

    @property
    def cache(self) -> Path:
        """The directory of the jars: the only one, so that its name need not be known."""
        found = self("doctor", "--brokers", "127.0.0.1:9").stdout
        where = re.search(r"jars are not in (\S+):|for the broker, in (\S+)", found)
        assert where is not None, found
        return Path((where[1] or where[2]).rstrip(";"))


def rights() -> tuple[str, ...]:
    """Return the start of a command line that is bound by the modes of files."""
    if os.geteuid() != 0:
        return ()
    if shutil.which(WITHOUT_RIGHTS[0]) is None:
        pytest.skip("root may write everywhere, and there is no setpriv to give that up")
    return WITHOUT_RIGHTS


def make_writable(environment: Path, allowed: bool) -> None:
    """Change the modes of directories only: the files are also those of the checkout."""
    for directory, _, _ in os.walk(environment):
        os.chmod(directory, 0o755 if allowed else 0o555)


def java_home() -> dict[str, str]:
    """Return where Java is; the first may be this worker's launcher, which needs the second."""
    names = ("JAVA_HOME", "RETALLY_JAVA_COMMAND")
    return {name: os.environ[name] for name in names if name in os.environ}


@pytest.fixture(scope="module")
def installed() -> Iterator[Installed]:
    place = Path(mkdtemp(prefix="retally-installed-"))
    home, work = place / "home", place / "work"
    for directory in (home, work):
        directory.mkdir()
    found = Installed(install(place), home, work)
    for where in (work, *found.environment.glob("lib/python3*/site-packages")):
        for name in FOREIGN:
            (where / name).parent.mkdir(exist_ok=True)
            (where / name).write_text("raise RuntimeError('this is a module of the user')\n")
    make_writable(found.environment, False)
    yield found
    make_writable(found.environment, True)
    shutil.rmtree(place)


def install(place: Path, more: Mapping[str, str] | None = None) -> Path:
    """Return a new environment with the packages of this checkout, and the wheel instead of it."""
    environment = place / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    (site,) = environment.glob("lib/python3*/site-packages")
    ours = Path(sysconfig.get_paths()["purelib"])
    ignored = shutil.ignore_patterns("__editable__*", "retally-*", "retally_client-*")
    shutil.copytree(
        ours, site, dirs_exist_ok=True, copy_function=link, ignore=ignored, symlinks=True
    )
    pip = [sys.executable, "-m", "pip", "--python", str(environment / "bin" / "python"), "install"]
    wheels = map(str, build_wheels(place, more))
    subprocess.run([*pip, "-q", "--no-deps", "--no-index", *wheels], check=True)
    return environment


def link(source: str, target: str) -> None:
    """Link a file, or copy it if it is on another file system."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def requirements(wheel: Path) -> list[str]:
    """Return what a wheel needs, without its extras."""
    needed = read_metadata(wheel).get_all("Requires-Dist", [])
    return [each for each in needed if "extra ==" not in each]


def read_metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [each for each in archive.namelist() if each.endswith(".dist-info/METADATA")]
        return email.message_from_bytes(archive.read(name))


def dependencies(name: str) -> set[str]:
    """Return the installed files of a package and of what it needs, relative to site-packages."""
    found = metadata.distribution(name)
    files = {str(each) for each in found.files or () if not str(each).startswith("..")}
    for needed in map(Requirement, found.requires or ()):
        if needed.marker is None or needed.marker.evaluate({"extra": ""}):
            files |= dependencies(needed.name)
    return files


USE = """
import importlib.util, sys
import retally
client = retally.connect(sys.argv[1])
assert client.group("items", "a").row == {"name": "a", "total": 1, "top": 1}
assert client.results("items").rows() == list(client.results("items"))
assert [type(next(client.follow("items", 0))) for _ in range(2)] == [retally.Change] * 2
for name in ("pyarrow", "pandas", "msgspec", "jobs", "service"):
    assert importlib.util.find_spec(name) is None, name
try:
    client.results("items").to_arrow()
except ModuleNotFoundError as error:
    print(error.name)
"""
TYPED = """
import retally
client = retally.connect("http://127.0.0.1:1")
lag = client.job("items").lag
records: int = 0 if lag is None else lag.records
rows: list[dict[str, object]] = client.results("items").rows()
client.job("items").aktual
async def f() -> int:
    return (await retally.connect_async("http://127.0.0.1:1").job("items")).failures
"""


@pytest.mark.slow
def test_the_wheel_of_the_client_alone_is_enough(tmp_path: Path) -> None:
    _, wheel = build_wheels(tmp_path)
    assert requirements(wheel) == ["httpx<1,>=0.27"]
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    (site,) = environment.glob("lib/python3*/site-packages")
    ours = Path(sysconfig.get_paths()["purelib"])
    for name in dependencies("httpx"):
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ours / name, site / name)
    python = str(environment / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-index"]
    subprocess.run([*pip, str(wheel)], check=True)  # with its requirements: they are there
    run = partial(subprocess.run, cwd=tmp_path, capture_output=True, text=True)
    with Served.start(tmp_path / "data") as served:
        watched = WatchedTable(served)
        watched.write({"a": (1,)})
        watched.seen()
        used = run([python, "-I", "-c", USE, served.address])
    assert (used.returncode, used.stdout) == (0, "pyarrow\n"), used.stderr
    (tmp_path / "typed.py").write_text(TYPED)
    mypy = [sys.executable, "-m", "mypy", "--strict", "--python-executable", python]
    checked = run([*mypy, "--config-file=", "typed.py"])
    (wrong, _) = checked.stdout.splitlines()
    assert '"Job" has no attribute "aktual"' in wrong


@pytest.mark.slow
def test_light_commands_run_anywhere_and_name_the_set_up(installed: Installed) -> None:
    assert "retally 0." in installed("--version").stdout
    python = [str(installed.environment / "bin" / "python"), "-Ic"]
    imports = "import retally_engine, jobs.core.functions as ours; print(ours.__file__)"
    there = subprocess.run([*python, imports], capture_output=True, text=True).stdout
    assert there.endswith(f"site-packages/{PARENT}/jobs/core/functions.py\n")
    assert "_retally" in installed("completion", "bash").stdout
    assert str(installed.home / ".cache" / "retally") in str(installed.cache)
    (installed.work / "items.yaml").write_text(
        "name: items\nsource: {topic: t}\ncolumns: {k: STRING}\n"
        "query: SELECT k, COUNT(*) AS n FROM t GROUP BY k\n"
    )
    for command in (["broker", "--data", "d"], ["demo"]):
        done = installed(*command)
        assert done.returncode == 1
        assert done.stderr.endswith(": run retally setup\n"), done.stderr
    assert installed("validate", "items.yaml").stdout == "ok\n"


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_command_on_a_terminal_offers_the_set_up(installed: Installed) -> None:
    ours, terminal = pty.openpty()
    process = subprocess.Popen(
        [*rights(), installed.environment / "bin" / "retally", "broker", "--data", "d"],
        cwd=installed.work,
        env={"HOME": str(installed.home), "PATH": os.environ["PATH"], **java_home()},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    )
    os.close(terminal)
    seen = ""
    while "[Y/n]" not in seen:
        try:
            seen += os.read(ours, 1_000).decode()
        except OSError:  # Linux' word for the end of a terminal
            pytest.fail(f"it ended without a question: {seen}")
    assert "the JVM jars are not in" in seen
    assert f"into {installed.home}/.cache/retally" in seen
    os.write(ours, b"n\n")
    assert process.wait(30) == 1
    os.close(ours)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.timeout(900)
def test_the_demo_of_an_installed_package_ends_exact(installed: Installed) -> None:
    cache = installed.cache
    copy_jars(cache)
    done = installed("setup", seconds=300)
    assert done.returncode == 0, done.stderr
    assert "JVM jars" not in done.stdout, "the jars are there, and are the locked ones"
    assert list(cache.glob("spark-*.jsa")), "the archive is of this environment"
    assert "everything is in place" in installed("setup").stdout
    before, mine = written(installed.environment), sorted(installed.work.iterdir())
    demo = installed("demo", "--seconds", "5", "--rate", "100", seconds=600)
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert re.search(r"^exact: \d+ groups equal the source's own table$", demo.stdout, re.M)
    assert re.search(r"^exact: \d+ warehouses equal the source's own join$", demo.stdout, re.M)
    assert written(installed.environment) == before
    assert sorted(installed.work.iterdir()) == mine


def copy_jars(cache: Path) -> None:
    for kind in ("spark", "broker"):
        (cache / kind).mkdir(parents=True, exist_ok=True)
        for jar in (jars.directory() / kind).iterdir():
            link(str(jar), str(cache / kind / jar.name))
    shutil.copy(jars.directory() / jars.MANIFEST, cache / jars.MANIFEST)


def written(environment: Path) -> list[str]:
    return sorted(str(path) for path in environment.rglob("*") if path.suffix != ".pyc")


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("changed", "shares_jars"),
    [
        ("jobs/core/kernels/codes.py", True),  # the kernels are others
        pytest.param(  # the packages, so that jars may be others too
            "jobs/setup/requirements.lock", False, marks=pytest.mark.faults
        ),
    ],
)
def test_two_versions_of_one_user_do_not_write_each_others_files(
    installed: Installed, tmp_path: Path, changed: str, shares_jars: bool
) -> None:
    """Both can be set up in any order: after the second one the first has nothing to do."""
    other = Installed(
        install(tmp_path, {changed: "\n# another version\n"}), installed.home, tmp_path
    )
    for each in (installed, other):
        if not (each.cache / jars.MANIFEST).exists():
            copy_jars(each.cache)
    assert (other.cache == installed.cache) is shares_jars
    assert installed("setup", seconds=300).returncode == 0
    before = stamps(installed.home)
    done = other("setup", seconds=300)
    assert done.returncode == 0, done.stderr
    after = stamps(installed.home)
    assert {path: after.get(path) for path in before} == before
    assert set(after) > set(before), "what differs has a place of its own"
    assert "everything is in place" in installed("setup").stdout
    assert "everything is in place" in other("setup").stdout


def stamps(home: Path) -> dict[str, tuple[int, int]]:
    """Return the time and the size of each file of a user."""
    found = ((path, path.lstat()) for path in home.rglob("*") if not path.is_dir())
    return {str(path): (each.st_mtime_ns, each.st_size) for path, each in found}
