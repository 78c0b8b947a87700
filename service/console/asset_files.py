"""Assets: the console's own style sheet, scripts and icon, under a name that changes with them.

    assets/*.css, *.js, *.svg ──► one digest of all ──► /assets/DIGEST/NAME, which browsers keep

The digest is a part of the path and not of the name, so that a script can import its neighbour by
`./neighbour.js`. They hold nothing of anybody's, so whoever may see the login page may have them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import Response

from service.problems import Problem

_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


def _read() -> dict[str, bytes]:
    home = Path(__file__).parent / "assets"
    return {
        path.name: path.read_bytes() for path in sorted(home.iterdir()) if path.suffix in _TYPES
    }


def _digest(files: Mapping[str, bytes]) -> str:
    told = hashlib.sha256()
    for name, content in files.items():
        told.update(f"{name} {len(content)}\n".encode() + content)
    return told.hexdigest()[:12]


_FILES = _read()
DIGEST = _digest(_FILES)

router = APIRouter(include_in_schema=False)


def asset(name: str) -> str:
    """Where a page finds an asset; a name that is none is a mistake of ours."""
    if name not in _FILES:
        raise LookupError(f"the console has no asset {name!r}")
    return f"/assets/{DIGEST}/{name}"


@router.get("/assets/{digest}/{name}")
async def get_asset(digest: str, name: str) -> Response:
    content = _FILES.get(name)
    if digest != DIGEST or content is None:
        raise Problem("not-found", 404, "the console has no such asset; load the page again")
    headers = {"Cache-Control": "public, max-age=31536000, immutable"}
    return Response(content, headers=headers, media_type=_TYPES[Path(name).suffix])
