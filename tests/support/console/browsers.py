"""Chromium for tests and pictures of the console."""

from __future__ import annotations

import shutil

from playwright.sync_api import Browser, Playwright

_NAMES = ("chromium", "chromium-browser", "google-chrome")
# One process less each, and root may not have the sandbox; the pages are our own.
_ARGUMENTS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]


def find_chromium() -> str | None:
    return next(filter(None, map(shutil.which, _NAMES)), None)


def launch(playwright: Playwright) -> Browser:
    return playwright.chromium.launch(executable_path=find_chromium(), args=_ARGUMENTS)
