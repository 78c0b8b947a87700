"""Set up the checkout; each step runs only if its result is missing or outdated.

    requirements.lock ──► pip ──► uv ──► .venv     stamp: .venv/setup.stamp
    jobs.setup.steps  ──► .java, .jars      Java, jars, archive of classes, compiled kernels

setup.sh runs this file with the Python for the virtual environment. It may import only the standard
library, and our files that need no more, because nothing else is installed yet. `--user` omits the
tools of tests. `--runtime` is for an image: it omits the jars of the embedded broker too, and
removes what packages bring along and a job never uses.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from jobs.edge.machine.java import JavaMissing  # noqa: E402
from jobs.setup import locked, steps  # noqa: E402
from jobs.setup.steps import Environment, SetupFailed, report, run  # noqa: E402
from setup import checkout  # noqa: E402
from setup.unused import remove_unused  # noqa: E402

VENV = ROOT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
STAMP = VENV / "setup.stamp"

Kind = Literal["all", "user", "runtime"]
KINDS: tuple[Kind, ...] = get_args(Kind)
# Options of uv by the names of pip's settings.
_PLACES = {
    "index-url": "default-index",
    "extra-index-url": "index",
    "find-links": "find-links",
    "trusted-host": "allow-insecure-host",
    "cert": "cert",
}
_TRUE = ("1", "true", "yes", "on", "y", "t")


def main(kind: Kind = "all") -> int:
    began = time.monotonic()
    runtime = kind == "runtime"
    try:
        checkout.check_packages()
        missing = missing_sections(kind)
        if not missing and steps.is_set_up(environment(runtime)):
            print("setup: everything is in place", flush=True)
            return 0
        if "build" in missing:
            make_environment()
        # Before the packages, so that a problem is reported within seconds.
        steps.install_java(environment(runtime))
        if missing:
            install_packages(missing, kind)
        checkout.check_jars()
        steps.set_up(environment(runtime))
    except (JavaMissing, SetupFailed, checkout.LockStale) as problem:
        print(f"setup: {problem}", file=sys.stderr)
        return 1
    print(f"setup: done in {time.monotonic() - began:.0f} s", flush=True)
    return 0


def environment(runtime: bool = False) -> Environment:
    """Return the environment of the checkout, as far as it is installed."""
    directories = sorted(VENV.glob("lib/python3*/site-packages/pyspark/jars"))
    return Environment(str(VENV_PYTHON), directories[-1] if directories else None, runtime)


# --- packages ---------------------------------------------------------------------------------


def missing_sections(kind: Kind) -> tuple[str, ...]:
    """Return the sections of the lock that must be installed."""
    found = STAMP.read_text() if STAMP.exists() else ""
    if found == packages_key(kind) or (kind == "user" and found == packages_key("all")):
        return ()
    if kind != "all":
        return locked.RUNTIME
    tests = locked.TESTS
    return tests if found == packages_key("user") else (*locked.RUNTIME, *tests)


def packages_key(kind: Kind = "all") -> str:
    """Return a key of the locked packages, the interpreter, and the path of the checkout."""
    environment = sys.version, sys.base_prefix, str(ROOT)
    wanted = locked.PACKAGES.read_bytes(), checkout.project_metadata()
    return locked.digest(*wanted, *environment, *([] if kind == "all" else [kind]))


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


def install_packages(sections: Sequence[str], kind: Kind) -> None:
    report("packages (half a minute if uv's cache is empty)")
    # The build backend comes first, because it builds pyspark and retally itself.
    if "build" in sections:
        steps.install_locked("build", "lock", by=steps.pip(str(VENV_PYTHON)), what="uv")
    by = uv()
    # An image is read-only, so nothing could be compiled later.
    compiled = ["--compile-bytecode"] if kind == "runtime" else []
    steps.install_locked(*sections, by=by, options=compiled, what="packages")
    if "build" in sections:
        both = ["-e", str(ROOT / "client"), "-e", str(ROOT)]
        ourselves = ["--no-deps", "--no-build-isolation", *both]
        run([*by, *ourselves], "retally itself")
    if kind == "runtime":
        for site_packages in VENV.glob("lib/python3*/site-packages"):
            remove_unused(site_packages)
    STAMP.write_text(packages_key(kind))


def uv() -> list[str]:
    """Return the command with which uv installs: it fetches and unpacks several files at once."""
    python = str(VENV_PYTHON)
    # As in pip, any index may have a file: the lock says which file.
    options = ["--no-progress", "--python", python, "--index-strategy", "unsafe-best-match"]
    # pyspark's wheel is unpacked at once, so compressing it is in vain.
    stored = ["--config-settings-package", "pyspark:--build-option=--compression=stored"]
    return [str(VENV / "bin" / "uv"), "pip", "install", *options, *stored, *places(python)]


def places(python: str) -> list[str]:
    """Return where pip is set to look for packages, and whom to trust there, as options of uv."""
    shown = subprocess.run(
        [python, "-m", "pip", "config", "list"], stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    # Settings of the environment are shown first, and count most.
    lines = sorted(shown.splitlines(), key=lambda line: line.startswith(":env:"))
    found = {"cert": str(steps.find_machine_bundle() or "")}
    for name, _, value in (line.partition("=") for line in lines):
        found[name.rpartition(".")[2]] = ast.literal_eval(value)
    if found.get("proxy"):
        os.environ["ALL_PROXY"] = found["proxy"]
    named = [(name, each) for name in _PLACES for each in found.get(name, "").split()]
    alone = ["--no-index"] if found.get("no-index", "").lower() in _TRUE else []
    return [*alone, *(f"--{_PLACES[name]}={each}" for name, each in named)]


if __name__ == "__main__":
    sys.exit(main(next((each for each in KINDS if f"--{each}" in sys.argv[1:]), "all")))
