"""The console's pages as one router, each part in a file of its own."""

from __future__ import annotations

from fastapi import APIRouter

from service.console import asset_files, job_pages, login_pages, spec_pages, trail_page

router = APIRouter()
for _part in (asset_files, login_pages, job_pages, spec_pages, trail_page):
    router.include_router(_part.router)
