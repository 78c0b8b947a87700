"""The console's pages as one router, each part in a file of its own."""

from __future__ import annotations

from fastapi import APIRouter

from service.console import (
    asset_files,
    job_pages,
    key_pages,
    login_pages,
    result_pages,
    spec_pages,
    trail_page,
)

_PARTS = (
    asset_files,
    login_pages,
    job_pages,
    spec_pages,
    trail_page,
    result_pages,
    key_pages,
)

router = APIRouter()
for _part in _PARTS:
    router.include_router(_part.router)
