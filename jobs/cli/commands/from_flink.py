"""retally from-flink: writes the job specs that a file of Flink SQL means."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from jobs.cli.errors import UsageError
from jobs.cli.output import print_note
from jobs.migrating.connections import FILE_NAME
from jobs.migrating.conversion import Conversion, convert
from schemas.limits import SPEC_BYTES_MAX

DONE, NOT_TAKEN, DIFFERS = 0, 2, 3
_OURS = ("# Made by `retally from-flink`", "# The connections of the specs beside this file")


def run(options: argparse.Namespace) -> int:
    conversion = convert(_read(options.file))
    written = [(draft.file_name, draft.text(), 0o644) for draft in conversion.drafts]
    if conversion.connections is not None:
        written.append((FILE_NAME, conversion.connections, 0o600))
    _write(options.out, written)
    for line in conversion.describe(str(options.file)):
        print_note(line)
    return _exit_code(conversion)


def _exit_code(conversion: Conversion) -> int:
    if conversion.problems:
        return NOT_TAKEN
    return DIFFERS if conversion.differs else DONE


def _read(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            content = opened.read(SPEC_BYTES_MAX + 1)
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {error.strerror}") from None
    if len(content) > SPEC_BYTES_MAX:
        raise UsageError(f"{file}: has more than {SPEC_BYTES_MAX} bytes; split it")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{file}: is not UTF-8 at byte {error.start}") from None


def _write(folder: Path, files: list[tuple[str, str, int]]) -> None:
    """Write the files, none of them over somebody else's."""
    for name, _, _ in files:
        path = folder / name
        if path.exists() and not path.read_text(encoding="utf-8").startswith(_OURS):
            raise UsageError(f"{path} is not from from-flink; move it, or use another --out")
    folder.mkdir(parents=True, exist_ok=True)
    for name, text, mode in files:
        path = folder / name
        path.unlink(missing_ok=True)  # a new file has its mode before it has its content
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
            opened.write(text)
        print(path)
