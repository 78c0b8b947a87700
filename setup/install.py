"""Set up the checkout; each step runs only if its result is missing or outdated.

    requirements.lock ──► pip ──► .venv            stamp: .venv/setup.stamp
    no Java 17+       ──► pip ──► .java            no stamp: it exists or not
    setup/ivy.xml     ──► Ivy (from pyspark) ──► .jars   stamp: the key in .jars/manifest.json
    Java and jars     ──► a short session of Spark ──► .jars/spark.jsa   stamp: .jars/spark.jsa.key
    jobs/core/kernels ──► numba ──► .jars/kernels   stamp: the fingerprint of the sources

Packages and jars are installed only if their SHA-256 is in the lock file (setup/locked.py).

setup.sh runs this file with the Python for the virtual environment. It may import only the standard
library, and our files that need no more, because nothing else is installed yet. `--runtime` is for
an image: it installs neither test tools nor the jars of the embedded broker.
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

from jobs.edge.process import jars, kernel_cache  # noqa: E402
from jobs.edge.process.java import (  # noqa: E402
    INSTALL,
    JavaMissing,
    install_launcher,
    java,
    own_home,
    read_build,
)
from setup import locked  # noqa: E402
from setup.java_trust import import_machine_certificates  # noqa: E402

VENV = ROOT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
STAMP = VENV / "setup.stamp"
NARRATION_SECONDS = 10
VERSION_IN_NAME = re.compile(r"-\d.*$")


class SetupFailed(RuntimeError):
    """A step of the set-up failed; the text says what to do."""


def main(runtime: bool = False) -> int:
    began = time.monotonic()
    try:
        locked.check_packages()
        packages = packages_key(runtime)
        if is_set_up(packages, runtime):
            print("setup: everything is in place", flush=True)
            return 0
        installed = has_packages(packages)
        if not installed:
            make_environment()
        install_java()  # before the packages, so that a problem is reported within seconds
        if not installed:
            install_packages(packages, runtime)
        fetch_jars(runtime)
        archive_classes()
        compile_kernels()
    except (JavaMissing, SetupFailed, locked.LockStale) as problem:
        print(f"setup: {problem}", file=sys.stderr)
        return 1
    print(f"setup: done in {time.monotonic() - began:.0f} s", flush=True)
    return 0


def is_set_up(packages: str, runtime: bool) -> bool:
    """Return whether an earlier set-up did everything that this one would do."""
    try:
        java()
    except JavaMissing:
        return False
    if not has_packages(packages) or not has_jars(runtime):
        return False
    return class_archive_key() == classes_key() and kernel_cache.has_kernels()


# --- packages ---------------------------------------------------------------------------------


def has_packages(key: str) -> bool:
    """Return whether the packages of this key are installed."""
    return STAMP.exists() and STAMP.read_text() == key


def packages_key(runtime: bool = False) -> str:
    """Return a key of the locked packages, the interpreter, and the path of the checkout."""
    environment = sys.version, sys.base_prefix, str(ROOT)
    wanted = locked.PACKAGES.read_bytes(), locked.project_metadata()
    return locked.digest(*wanted, *environment, *_key_suffix(runtime))


def _key_suffix(runtime: bool) -> list[str]:
    """Return the part of a key that distinguishes a runtime set-up from a full one."""
    return ["runtime"] if runtime else []


def make_environment() -> None:
    if VENV.is_symlink():  # replacing it would break the environment of another checkout
        raise SetupFailed(
            f".venv is a link to {VENV.resolve()}: remove the link, or run make setup there"
        )
    if importlib.util.find_spec("ensurepip") is None:
        raise SetupFailed(
            f"{sys.executable} cannot create virtual environments: install its venv module "
            "(Debian and Ubuntu: apt install python3-venv)"
        )
    report("virtual environment in .venv")
    # Use the real interpreter, so that a set-up started inside of .venv can replace it.
    base = str(Path(sys.executable).resolve())
    run([base, "-m", "venv", "--clear", str(VENV)], "virtual environment")


def install_packages(key: str, runtime: bool) -> None:
    report("packages (1 to 2 minutes if pip's cache is empty)")
    # The build backend comes first, because it builds pyspark and retally itself.
    install_locked("build", what="build backend")
    install_locked("runtime", *([] if runtime else ["dev"]), what="packages")
    pip_install("--no-deps", "--no-build-isolation", "-e", str(ROOT), what="retally itself")
    STAMP.write_text(key)


def install_locked(
    *sections: str, what: str, options: Sequence[str] = (), advice: str = "", python: str = ""
) -> None:
    """Install these sections of the lock; pip refuses files with another SHA-256.

    It installs only wheels, which run no code at installation. Only pyspark has no wheel; the
    locked backend builds it. pip resolves nothing, so it installs only packages of the lock.
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
    """Install Java next to the jars if the machine has no Java 17 or newer."""
    try:
        java()
        return
    except JavaMissing as missing:
        report(
            f"{str(missing).removesuffix(f': {INSTALL}')}: installing one (38 MB) in {own_home()}"
        )
    home = own_home()
    partial = home.with_name(f"{home.name}.partial")
    for left in (partial, home):
        shutil.rmtree(left, ignore_errors=True)
    install_locked("java", options=["--target", str(partial)], what="Java", advice=f"; {INSTALL}")
    (runtime,) = partial.glob("*/java-runtime")
    install_launcher(partial, runtime)
    import_machine_certificates(runtime)
    # The wheel lacks the archive of Java's own classes. The archive of Spark's classes needs it,
    # and every start is some tenths of a second faster with it.
    run([str(partial / "bin" / "java"), "-Xshare:dump"], "Java's own classes")
    partial.rename(home)
    java.cache_clear()
    report(f"  {read_build(java()).splitlines()[0]}")


# --- jars -------------------------------------------------------------------------------------


def pyspark_jars() -> Path | None:
    """Return the directory of the jars in pyspark, or None if it is not installed."""
    directories = sorted(VENV.glob("lib/python3*/site-packages/pyspark/jars"))
    return directories[-1] if directories else None


def jars_key(runtime: bool = False) -> str:
    """Return a key of the wanted jars and of the jars in pyspark."""
    shipped = pyspark_jars()
    names = sorted(os.listdir(shipped)) if shipped else []
    wanted = locked.IVY_XML.read_bytes(), locked.JARS.read_bytes()
    return locked.digest(*wanted, *names, *_key_suffix(runtime))


def has_jars(runtime: bool) -> bool:
    """Return whether all wanted jars exist with the SHA-256 of the lock."""
    if jars.fetched_key() != jars_key(runtime):
        return False
    return not locked.differing_jars(jars.directory(), runtime)


def fetch_jars(runtime: bool) -> None:
    if has_jars(runtime):
        return
    locked.check_jars()
    shipped = pyspark_jars()
    if shipped is None:
        raise SetupFailed("pyspark is not in .venv: remove .venv and run make setup again")
    report("JVM jars for Spark and the broker (about 1 minute if Ivy's cache is empty)")
    target = jars.directory()
    partial = target.with_name(target.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    only = ["-confs", "spark"] if runtime else []
    retrieve(partial, "[conf]/[artifact]-[revision].[ext]", shipped, only)
    remove_shipped(partial / "spark", shipped)
    if differing := locked.differing_jars(partial, runtime):
        shutil.rmtree(partial)
        raise SetupFailed(
            f"these jars differ from {locked.JARS.name}: {', '.join(differing)}; no jar was "
            "installed; remove them from Ivy's cache (~/.ivy2), and check your mirror if any"
        )
    jars.write_manifest(partial, jars_key(runtime))
    shutil.rmtree(target, ignore_errors=True)
    partial.rename(target)


def retrieve(where: Path, pattern: str, shipped: Path, options: Sequence[str] = ()) -> None:
    """Fetch the jars of setup/ivy.xml with Ivy into a directory."""
    ivy = [str(java()), *proxy_options(), "-cp", f"{shipped}/*", "org.apache.ivy.Main"]
    if settings := os.environ.get("RETALLY_IVY_SETTINGS"):
        ivy += ["-settings", settings]
    run(
        [*ivy, *options, "-ivy", str(locked.IVY_XML), "-retrieve", f"{where}/{pattern}"],
        "JVM jars",
        advice="; behind a mirror, name an Ivy settings file in RETALLY_IVY_SETTINGS",
    )


def remove_shipped(fetched: Path, shipped: Path) -> None:
    """Remove jars that pyspark has too: two versions of a jar would conflict in one JVM."""
    known = {module_name(name) for name in os.listdir(shipped)}
    for jar in fetched.iterdir():
        if module_name(jar.name) in known:
            jar.unlink()


def module_name(jar: str) -> str:
    """Return the name of a jar without its version."""
    return VERSION_IN_NAME.sub("", jar)


def proxy_options() -> list[str]:
    """Return https_proxy as options of Java, which ignores the variable itself."""
    proxy = urlsplit(os.environ.get("https_proxy") or os.environ.get("HTTPS_PROXY") or "")
    if not proxy.hostname:
        return []
    return [f"-Dhttps.proxyHost={proxy.hostname}", f"-Dhttps.proxyPort={proxy.port or 8080}"]


# --- Spark's classes --------------------------------------------------------------------------


def classes_key() -> str:
    """Return a key of Java, and of the jars and their directory."""
    return locked.digest(
        read_build(java()), jars.fetched_key() or "", str(jars.directory().resolve())
    )


def class_archive_key() -> str | None:
    """Return the key of the last attempt, successful or not."""
    stamp = _classes_stamp()
    return stamp.read_text() if stamp.exists() else None


def _classes_stamp() -> Path:
    return jars.directory() / "spark.jsa.key"


def archive_classes() -> None:
    """Create the archive of Spark's classes; without it jobs only start more slowly."""
    if class_archive_key() == classes_key():
        return
    report("archive of Spark's classes, for faster starts of jobs")
    try:
        run([str(VENV_PYTHON), "-m", "jobs.edge.spark.class_archive"], "archive of classes")
    except SetupFailed as problem:
        report(f"  {problem}; jobs start without it, some seconds more slowly")
    _classes_stamp().write_text(classes_key())


# --- compiled kernels -------------------------------------------------------------------------


def compile_kernels() -> None:
    """Compile the kernels; without this the first job of a host does it, some seconds long."""
    if kernel_cache.has_kernels():
        return
    report("compiled loops of the decoder")
    try:
        run([str(VENV_PYTHON), "-m", "jobs.edge.process.kernel_cache"], "compiled loops")
    except SetupFailed as problem:
        report(f"  {problem}; jobs decode without them, more slowly")


# --- output and commands ----------------------------------------------------------------------


def report(text: str) -> None:
    print(f"setup: {text}", flush=True)


def run(command: list[str], what: str, advice: str = "") -> None:
    """Run a command; print its progress every few seconds, and its last lines if it fails."""
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
                report(f"  {time.monotonic() - began:.0f} s: {now}")
    if process.returncode != 0:
        print(*lines[-25:], sep="\n", file=sys.stderr)
        raise SetupFailed(f"{what} failed with exit code {process.returncode}, see above{advice}")
    report(f"  {what}: {time.monotonic() - began:.0f} s")


def collect(process: subprocess.Popen[str], lines: list[str]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if text := line.strip().strip("."):
            lines.append(text)


if __name__ == "__main__":
    sys.exit(main(runtime="--runtime" in sys.argv[1:]))
