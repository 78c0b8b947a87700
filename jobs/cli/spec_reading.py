"""Read a spec file: spec and plans, or every problem of them with its line in the file."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from jobs.core.job.spec_check import check_spec, sort_problems
from jobs.core.plan.tree import Plan
from schemas.limits import SPEC_BYTES_MAX
from schemas.spec.file import Document, SpecError, read_file, read_text
from schemas.spec.job import JobSpec


def load_job(path: Path) -> tuple[JobSpec, Mapping[str, Plan]]:
    """Return the spec in a file and the plan of each view; a SpecError has every problem.

    The plan of the job's own query has the name "".
    """
    spec, plans, _ = load_document(path)
    return spec, plans


def load_document(path: Path) -> tuple[JobSpec, Mapping[str, Plan], Document]:
    """Return spec, plans and the positions of the document; `-` is standard input."""
    text = sys.stdin.read(SPEC_BYTES_MAX + 1) if str(path) == "-" else None
    try:
        document = read_file(path) if text is None else read_text(text, "-")
        found = check_spec(document)
        if found.spec is None or found.problems:
            raise SpecError(document.name, sort_problems(found.problems))
        return found.spec, found.plans, document
    except SpecError as error:
        error.text = text
        if text is None:
            with suppress(OSError, UnicodeDecodeError), path.open(encoding="utf-8-sig") as file:
                error.text = file.read(SPEC_BYTES_MAX)
        raise
