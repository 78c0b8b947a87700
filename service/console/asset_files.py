"""Assets: the console's style sheet, scripts and icon, under an address with their digest.

    assets/*.js, *.svg, vendor/*.js ──┐
    assets/styles/*.css ──► console.css ──► one digest of all ──► /assets/DIGEST/NAME, for a year

The digest is in the path and not in the name, so that a script can import another one by
`./other.js`. Assets contain no data of users, so they need no login.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import RedirectResponse, Response

from service.problems import Problem

_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


_STYLES = (
    "base",
    "frame",
    "parts",
    "tables",
    "forms",
    "charts",
    "job",
    "rows",
    "editor",
    "sql",
    "narrow",
)


def _read_files() -> dict[str, bytes]:
    home = Path(__file__).parent / "assets"
    files = {
        path.name: path.read_bytes()
        for folder in (home, home / "vendor")
        for path in sorted(folder.iterdir())
        if path.suffix in _TYPES
    }
    styles = (home / "styles" / f"{name}.css" for name in _STYLES)
    files["console.css"] = b"\n".join(path.read_bytes() for path in styles)
    return files


def _compute_digest(files: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name, content in files.items():
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:12]


_FILES = _read_files()
DIGEST = _compute_digest(_FILES)

router = APIRouter(include_in_schema=False)


def asset_address(name: str) -> str:
    """Return the address of an asset; raise LookupError for an unknown name."""
    if name not in _FILES:
        raise LookupError(f"the console has no asset {name!r}")
    return f"/assets/{DIGEST}/{name}"


@router.get("/favicon.ico")
async def get_icon() -> Response:
    return RedirectResponse(asset_address("icon.svg"))


@router.get("/assets/{digest}/{name}")
async def get_asset(digest: str, name: str) -> Response:
    content = _FILES.get(name)
    if digest != DIGEST or content is None:
        raise Problem("not-found", "the console has no such asset; load the page again")
    headers = {"Cache-Control": "public, max-age=31536000, immutable"}
    return Response(content, headers=headers, media_type=_TYPES[Path(name).suffix])
