"""Base images for a machine that reaches no image registry.

    pull ──► the image that Dockerfile and .env name
      └ it fails: debootstrap + this machine's CPython ──► a base
                  that base + the locked broker jars   ──► Kafka, started by its own Docker wrapper

A stand-in shows nothing about the published image: docs/deploy.md says which was used.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.compose.engine import Engine, EngineFailed

BASE_STAND_IN = "retally-test-base:bookworm"
KAFKA_STAND_IN = "retally-test-kafka"
PULL_SECONDS_MAX = 300
KAFKA_FILES = Path(__file__).parent / "kafka"
# What CPython's own modules link to.
LIBRARIES = (
    "netbase",
    "tzdata",
    "ca-certificates",
    "libsqlite3-0",
    "libssl3",
    "libffi8",
    "libncursesw6",
    "libnsl2",
    "libtirpc3",
    "libuuid1",
    "libbz2-1.0",
    "liblzma5",
    "libreadline8",
    "zlib1g",
    "libgdbm6",
    "libexpat1",
)
# How this machine reaches its mirrors, if it does not by the defaults.
CLIENT_SETTINGS = (
    "etc/apt/sources.list",
    "etc/apt/sources.list.d/*.sources",
    "etc/apt/sources.list.d/*.list",
    "etc/apt/apt.conf.d/99*",
    "etc/pip.conf",
    "usr/local/share/ca-certificates/*.crt",
    "etc/resolv.conf",
)
NOT_IN_AN_IMAGE = ("site-packages", "test", "__pycache__", "tkinter", "idlelib", "turtledemo")


@dataclass(frozen=True, slots=True)
class Images:
    """The two bases, and whether they are the published ones."""

    base: str
    kafka: str
    published: bool


def find_bases(engine: Engine, base: str, kafka: str, jars: Path) -> Images:
    """Return the published images if the engine gets them, else stand-ins."""
    if _pulls(engine, base) and _pulls(engine, kafka):
        return Images(base, kafka, published=True)
    if not engine.has_image(BASE_STAND_IN):
        _make_base(engine)
    version = kafka.partition("@")[0].rpartition(":")[2]
    name = f"{KAFKA_STAND_IN}:{version}"
    if not engine.has_image(name):
        _make_kafka(engine, name, jars)
    return Images(BASE_STAND_IN, name, published=False)


def _pulls(engine: Engine, image: str) -> bool:
    if engine.has_image(image):
        return True
    try:
        return (
            subprocess.run(
                ["docker", "pull", "--quiet", image],
                env=engine.environment,
                capture_output=True,
                timeout=PULL_SECONDS_MAX,
            ).returncode
            == 0
        )
    except subprocess.TimeoutExpired:
        return False


def _make_base(engine: Engine) -> None:
    if shutil.which("debootstrap") is None:
        raise EngineFailed("no registry answers, and a stand-in needs debootstrap: install it")
    codename = platform.freedesktop_os_release()["VERSION_CODENAME"]
    with tempfile.TemporaryDirectory(prefix="retally-base-") as scratch:
        root = Path(scratch) / "root"
        engine.run("debootstrap", "--variant=minbase", codename, str(root), *_mirror())
        for pattern in CLIENT_SETTINGS:
            for path in Path("/").glob(pattern):
                target = root / path.relative_to("/")
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
        install = "apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y"
        rest = "--no-install-recommends " + " ".join(LIBRARIES)
        tidy = "update-ca-certificates && apt-get clean && rm -rf /var/lib/apt/lists/*"
        engine.run("chroot", str(root), "sh", "-c", f"{install} {rest} && {tidy}")
        _copy_python(root)
        engine.run("chroot", str(root), "ldconfig")
        engine.run("chroot", str(root), "/usr/local/bin/python3", "-m", "ensurepip")
        (root / "etc/resolv.conf").unlink(missing_ok=True)
        search = "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
        archive = Path(scratch) / "root.tar"
        engine.run("tar", "-C", str(root), "--numeric-owner", "-cf", str(archive), ".")
        change = f"ENV PATH={search} LANG=C.UTF-8"
        engine.docker("import", "--change", change, str(archive), BASE_STAND_IN)


def _mirror() -> list[str]:
    """Return the machine's own mirror of Debian, as an argument of debootstrap."""
    for path in sorted(Path("/etc/apt/sources.list.d").glob("*.sources")):
        for line in path.read_text().splitlines():
            if line.startswith("URIs:"):
                return [line.split()[1]]
    return []


def _copy_python(root: Path) -> None:
    """Copy this interpreter to where the published image has its own."""
    prefix, name = Path(sys.base_prefix), f"python3.{sys.version_info.minor}"
    library = root / "usr/local/lib"
    ignored = shutil.ignore_patterns(*NOT_IN_AN_IMAGE, "config-3*")
    shutil.copytree(prefix / "lib" / name, library / name, symlinks=True, ignore=ignored)
    (library / name / "site-packages").mkdir()
    for shared in (prefix / "lib").glob("libpython3*.so*"):
        shutil.copy2(shared, library, follow_symlinks=False)
    binaries = root / "usr/local/bin"
    shutil.copy2(prefix / "bin" / name, binaries / name)
    (binaries / "python3").symlink_to(name)
    (binaries / "python").symlink_to("python3")


def _make_kafka(engine: Engine, name: str, jars: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="retally-kafka-") as scratch:
        context = Path(scratch)
        shutil.copytree(KAFKA_FILES, context, dirs_exist_ok=True)
        shutil.copytree(jars, context / "libs")
        base = f"BASE={BASE_STAND_IN}"
        engine.run(
            "docker", "compose", "--file", "image.yaml", "build", "--build-arg", base, cwd=context
        )
        engine.docker("tag", KAFKA_STAND_IN, name)
        engine.docker("rmi", KAFKA_STAND_IN)
    assert engine.has_image(name)
