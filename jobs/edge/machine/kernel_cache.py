"""Compiled kernels on this host: where they are kept, and how a process loads them.

    jobs/core/kernels ─► fingerprint of the sources ─► .jars/kernels/<fingerprint>/
                                                       ~/.cache/retally/kernels/<fingerprint>/
                                                       if the first place is read-only: then
                                                       it begins as a copy of the first one

`python -m jobs.edge.machine.kernel_cache` compiles them.

numba looks at the file of a kernel, but not at the files that it imports; so each state of the
sources has a directory of its own. Compiling takes some ten seconds, loading a quarter of one.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from jobs.edge.machine import jars

WHY_NO_KERNELS = "numba is missing, or its cache cannot be read or written: see NUMBA_CACHE_DIR"
_COMPLETE = "complete"

_SOURCES = Path(__file__).resolve().parents[2] / "core" / "kernels"
_FINGERPRINT_CHARACTERS = 16


def use_kernel_cache() -> Path:
    """Tell numba where to keep compiled kernels; call this before a kernel is imported."""
    named = os.environ.get("NUMBA_CACHE_DIR")
    found = Path(named) if named else _writable_directory() / _fingerprint()
    if not named:
        _copy_from_set_up(found)
    os.environ["NUMBA_CACHE_DIR"] = str(found)
    return found


def has_kernels() -> bool:
    """Return whether the kernels of these sources have been compiled here."""
    return (use_kernel_cache() / _COMPLETE).exists()


def load_kernels() -> bool:
    """Load all kernels, or compile them first; return False if this host cannot have them."""
    use_kernel_cache()
    from jobs.core.fold.columnar.bucket_fold import load_fold
    from jobs.core.formats.message_scanner import load_scanner
    from jobs.core.kernels.foreign_messages import load_foreign_messages

    load_foreign_messages()  # numba may run kernels that are not compiled, but not these
    return load_scanner() and load_fold()


def main() -> int:
    """Compile the kernels. Nothing is removed: the directory may be the user's own."""
    if not load_kernels():
        return 1
    (use_kernel_cache() / _COMPLETE).touch()
    return 0


def _copy_from_set_up(target: Path) -> None:
    """Begin with what the set-up compiled; numba compiles again for another processor.

    Several processes may do this at once, so the copy gets its name when it is complete.
    """
    compiled = jars.directory() / "kernels" / target.name
    if target.exists() or not (compiled / _COMPLETE).exists():
        return
    with suppress(OSError):  # another process was faster, or there is no room: compile
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as partial:
            copy = shutil.copytree(compiled, Path(partial) / target.name)
            copy.rename(target)


def _writable_directory() -> Path:
    beside_jars = jars.directory() / "kernels"
    try:
        beside_jars.mkdir(parents=True, exist_ok=True)
    except OSError:
        pass
    else:
        if os.access(beside_jars, os.W_OK):
            return beside_jars
    return jars.own_cache() / "kernels"


def _fingerprint() -> str:
    """Return a name for the sources, and for numba's way to compile them."""
    known = sha256(str(_SOURCES).encode())  # numba's files are named after it too
    for source in sorted(_SOURCES.glob("*.py")):
        known.update(source.read_bytes())
    known.update(os.environ.get("NUMBA_BOUNDSCHECK", "").encode())
    return known.hexdigest()[:_FINGERPRINT_CHARACTERS]


if __name__ == "__main__":
    sys.exit(main())
