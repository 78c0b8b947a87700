"""What the tests of the deployment read: docker-compose.yml with .env put in, the Dockerfile."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

CHECKOUT = Path(__file__).resolve().parents[2]
COMPOSE = CHECKOUT / "docker-compose.yml"
DOCKERFILE = CHECKOUT / "Dockerfile"
SETTINGS = CHECKOUT / ".env"
_VARIABLE = re.compile(r"\$(?:\$|\{([A-Z_]+)\})")


def settings() -> dict[str, str]:
    """.env, as Compose reads it: a name, a value, whole lines of comment."""
    lines = [line for line in SETTINGS.read_text().splitlines() if line and line[0] != "#"]
    return dict(line.split("=", 1) for line in lines)


def variables() -> set[str]:
    """Those that the compose file asks for."""
    return {name for name in _VARIABLE.findall(COMPOSE.read_text()) if name}


def composed(**environment: str) -> dict[str, Any]:
    """The compose file with its variables put in, as `docker compose config` would have it; the
    `environment` counts before .env."""
    given = settings() | environment
    return _put_in(yaml.safe_load(COMPOSE.read_text()), given)  # type: ignore[no-any-return]


def _put_in(value: Any, given: dict[str, str]) -> Any:
    if isinstance(value, str):
        return _VARIABLE.sub(lambda found: given[found[1]] if found[1] else "$", value)
    if isinstance(value, dict):
        return {key: _put_in(below, given) for key, below in value.items()}
    if isinstance(value, list):
        return [_put_in(below, given) for below in value]
    return value


@dataclass(frozen=True, slots=True)
class Instruction:
    """A line of the Dockerfile, with what continues it."""

    stage: int
    word: str
    text: str

    @property
    def words(self) -> list[str]:
        """Of the form in brackets, or as a shell would split it."""
        if self.text.startswith("["):
            found: list[str] = json.loads(self.text)
            return found
        return shlex.split(self.text)


def dockerfile() -> list[Instruction]:
    """All instructions in order; the stage counts from 0."""
    lines = [line for line in DOCKERFILE.read_text().splitlines() if not re.match(r"\s*#", line)]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    found: list[Instruction] = []
    stage = -1
    for line in joined.splitlines():
        if not line.strip():
            continue
        word, _, text = line.strip().partition(" ")
        stage += word == "FROM"
        found.append(Instruction(stage, word, text.strip()))
    return found


def image_environment() -> dict[str, str]:
    """ENV of the last stage."""
    last = max(each.stage for each in dockerfile())
    pairs = [
        word.split("=", 1)
        for each in dockerfile()
        if each.stage == last and each.word == "ENV"
        for word in each.words
    ]
    return {pair[0]: pair[1] for pair in pairs}
