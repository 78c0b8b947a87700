"""`make compose-test` follows each section of docs/deploy.md, but those that have a reason here."""

from __future__ import annotations

import re

from tests.compose.page import commands, sections
from tests.deploy.deployment import CHECKOUT

NOT_FOLLOWED = {
    "Base images": "it asks an image registry",
    "A second service": "tests/deploy/test_second_service.py starts two as processes",
    "Release an image": "test_release.py runs it with git, and a docker that records its arguments",
    "Monitoring": "its images are of a registry; test_monitoring.py runs what they would",
}


def test_every_section_with_commands_is_followed() -> None:
    suite = (CHECKOUT / "tests" / "compose" / "test_deploy_page.py").read_text()
    followed = set(re.findall(r'(?:follow|commands)\("([^"]+)"', suite))
    has_commands = {heading for heading in sections() if commands(heading)}
    assert followed == has_commands - set(NOT_FOLLOWED)


def test_the_first_command_starts_everything() -> None:
    assert commands("Quick start")[0] == "docker compose up --detach --wait"
