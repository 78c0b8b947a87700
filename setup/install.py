"""Set up the checkout; each step runs only if its result is missing or outdated.

    requirements.lock ──► pip ──► .venv     stamp: .venv/setup.stamp
    jobs.setup.steps  ──► .java, .jars      Java, jars, archive of classes, compiled kernels

setup.sh runs this file with the Python for the virtual environment. It may import only the standard
library, and our files that need no more, because nothing else is installed yet. `--runtime` is for
an image: it installs neither test tools nor the jars of the embedded broker, and removes what
packages bring along and a job never uses.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from jobs.edge.machine.java import JavaMissing  # noqa: E402
from jobs.setup import locked, steps  # noqa: E402
from jobs.setup.steps import Environment, SetupFailed, report, run  # noqa: E402
from jobs.setup.unused import remove_unused  # noqa: E402

VENV = ROOT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
STAMP = VENV / "setup.stamp"


def main(runtime: bool = False) -> int:
    began = time.monotonic()
    try:
        locked.check_packages()
        packages = packages_key(runtime)
        if has_packages(packages) and steps.is_set_up(environment(runtime)):
            print("setup: everything is in place", flush=True)
            return 0
        installed = has_packages(packages)
        if not installed:
            make_environment()
        # Before the packages, so that a problem is reported within seconds.
        steps.install_java(environment(runtime))
        if not installed:
            install_packages(packages, runtime)
        locked.check_jars()
        steps.set_up(environment(runtime))
    except (JavaMissing, SetupFailed, locked.LockStale) as problem:
        print(f"setup: {problem}", file=sys.stderr)
        return 1
    print(f"setup: done in {time.monotonic() - began:.0f} s", flush=True)
    return 0


def environment(runtime: bool = False) -> Environment:
    """Return the environment of the checkout, as far as it is installed."""
    directories = sorted(VENV.glob("lib/python3*/site-packages/pyspark/jars"))
    return Environment(str(VENV_PYTHON), directories[-1] if directories else None, runtime)


# --- packages ---------------------------------------------------------------------------------


def has_packages(key: str) -> bool:
    """Return whether the packages of this key are installed."""
    return STAMP.exists() and STAMP.read_text() == key


def packages_key(runtime: bool = False) -> str:
    """Return a key of the locked packages, the interpreter, and the path of the checkout."""
    environment = sys.version, sys.base_prefix, str(ROOT)
    wanted = locked.PACKAGES.read_bytes(), locked.project_metadata()
    return locked.digest(*wanted, *environment, *(["runtime"] if runtime else []))


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
    python = str(VENV_PYTHON)
    steps.install_locked("build", python=python, what="build backend")
    sections = ["runtime"] if runtime else ["runtime", "dev"]
    steps.install_locked(*sections, python=python, what="packages")
    ourselves = ["--no-deps", "--no-build-isolation", "-e", str(ROOT)]
    steps.pip_install(*ourselves, python=python, what="retally itself")
    if runtime:
        for site_packages in VENV.glob("lib/python3*/site-packages"):
            remove_unused(site_packages)
    STAMP.write_text(key)


if __name__ == "__main__":
    sys.exit(main(runtime="--runtime" in sys.argv[1:]))
