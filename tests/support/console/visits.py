"""Open and check pages: light and dark, wide and narrow, with axe, and without script errors."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Locator, Page

from tests.support.service.served import Served

WIDE, NARROW = 1280, 360
_HEIGHT = 800
_SETTLE_MS = 10_000
# SCREENSHOTS=DIR keeps a screenshot of each checked page; docs/pictures has some of them.
_PICTURES = os.environ.get("SCREENSHOTS")


@dataclass(slots=True)
class Visits:
    """A browser with pages of one service, for one test."""

    browser: Browser
    served: Served
    contexts: list[BrowserContext] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)

    def open(
        self,
        path: str,
        *,
        scheme: Literal["light", "dark"] = "light",
        width: int = WIDE,
        token: str | None = None,
    ) -> Page:
        """Open a page in its own browser context; with a token, log in by the form."""
        context = self.browser.new_context(
            base_url=self.served.address,
            color_scheme=scheme,
            viewport={"width": width, "height": _HEIGHT},
            reduced_motion="reduce",
        )
        context.set_default_timeout(_SETTLE_MS)
        self.contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: self._record(message.type, message.text))
        page.on("pageerror", lambda error: self.wrong.append(f"page error: {error}"))
        if token is not None:
            page.goto("/login")
            page.get_by_label("Token").fill(token)
            page.get_by_role("button", name="Log in").click()
            page.wait_for_url("**/")
        page.goto(path)
        return page

    def expect(self, pattern: str) -> None:
        """Expect messages in the browser's console that match a regular expression."""
        self.expected.append(pattern)

    def close(self) -> None:
        for context in self.contexts:
            context.close()
        unexpected = [
            text for text in self.wrong if not any(re.search(each, text) for each in self.expected)
        ]
        assert not unexpected, "\n".join(unexpected)

    def _record(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.wrong.append(f"console {kind}: {text}")


def assert_sound(page: Page, name: str = "") -> None:
    """Check a page with axe, and that it is not wider than the screen."""
    found = Axe().run(page, options={"resultTypes": ["violations"]})
    violations: Sequence[dict[str, Any]] = found.response["violations"]
    found_violations = [
        f"{each['id']}: {each['help']}\n  " + "\n  ".join(node["html"] for node in each["nodes"])
        for each in violations
    ]
    assert not found_violations, "\n".join(["", page.url, *found_violations])
    size = page.evaluate(
        "() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    assert size[0] <= size[1], f"{page.url} is {size[0]} pixels wide on a screen of {size[1]}"
    if _PICTURES and name:
        Path(_PICTURES).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=Path(_PICTURES) / f"{name}.png", full_page=True)


def assert_sound_everywhere(visits: Visits, path: str, name: str, token: str | None = None) -> None:
    """Check a page in light on a wide screen, and in dark on a phone."""
    assert_sound(visits.open(path, token=token), f"{name}-light")
    narrow = visits.open(path, scheme="dark", width=NARROW, token=token)
    assert_sound(narrow, f"{name}-dark-narrow")


_PASTE = """(element, text) => {
  const clipboardData = new DataTransfer();
  clipboardData.setData("text/plain", text);
  const init = { clipboardData, bubbles: true, cancelable: true };
  element.dispatchEvent(new ClipboardEvent("paste", init));
}"""


def write_spec(editor: Locator, text: str, area: str = "#spec") -> None:
    """Paste a text over the whole one of the editor, again if something else moved its cursor."""
    for _ in range(3):
        editor.press("Control+a")
        editor.evaluate(_PASTE, text)
        if editor.page.locator(area).input_value() == text:
            return
    raise AssertionError("the editor does not take the text")
