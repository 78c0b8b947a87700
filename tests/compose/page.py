"""docs/deploy.md as a person follows it: its commands in order, in one shell, word by word.

heading ──► its `sh` blocks ──► commands ──► one bash that keeps TOKEN and U

Two things differ from the page, and only these: the service's port is a free one, and a stream
that never ends is left after its first event.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.documents import DOCS, FENCE

PAGE = DOCS / "deploy.md"
PORT_OF_THE_PAGE = "127.0.0.1:8080"
STREAM_SECONDS = 60
_VARIABLES = "TOKEN U"


def sections() -> dict[str, str]:
    """Return the text below each heading of the page."""
    parts = re.split(r"^##+ (.+)$", PAGE.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def commands(heading: str) -> list[str]:
    """Return the commands below a heading, one for each line of its `sh` blocks."""
    blocks = [match[2] for match in FENCE.finditer(sections()[heading]) if match[1] == "sh"]
    return [line for block in blocks for line in block.splitlines() if line.strip()]


def document(heading: str, kind: str) -> str:
    """Return the one block of another kind below a heading."""
    (found,) = [match[2] for match in FENCE.finditer(sections()[heading]) if match[1] == kind]
    return found


class CommandFailed(AssertionError):
    """A command of the page did not succeed."""


@dataclass(slots=True)
class Shell:
    """The terminal of whoever follows the page."""

    cwd: Path
    environment: dict[str, str]
    service: str  # the address that stands for the page's
    run: list[str] = field(default_factory=list)
    _state: str = ""

    def follow(self, heading: str, *about: str) -> str:
        """Run the commands below a heading, or those with one of these texts; return the output."""
        chosen = [line for line in commands(heading) if not about or _has(line, about)]
        assert chosen, f"{PAGE.name} has no such command below {heading!r}: {about}"
        return "".join(self.type(line) for line in chosen)

    def type(self, line: str) -> str:
        """Run one line as it is written."""
        self.run.append(line)
        placed = line.replace(PORT_OF_THE_PAGE, self.service)
        if placed.startswith("curl -N"):
            placed = f"{{ timeout {STREAM_SECONDS} {placed} || true; }} | head -n 4"
        script = f"{self._state}\nset -o pipefail\n{placed}\nstatus=$?\n"
        kept = f"declare -p {_VARIABLES} 2>/dev/null >&9\nexit $status"
        read = subprocess.run(
            ["bash", "-c", f"exec 9>{self.cwd}/.state\n{script}{kept}"],
            cwd=self.cwd,
            env=self.environment,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        if read.returncode != 0:
            told = "\n".join((read.stdout + read.stderr).splitlines()[-40:])
            logs = subprocess.run(
                ["docker", "compose", "logs", "--tail", "20"],
                cwd=self.cwd,
                env=self.environment,
                capture_output=True,
                text=True,
            ).stdout
            raise CommandFailed(f"{placed}\nexit code {read.returncode}\n{told}\n{logs}")
        self._state = (self.cwd / ".state").read_text()
        return read.stdout

    def variable(self, name: str) -> str:
        found = re.search(rf'^declare -- {name}="(.*)"$', self._state, re.MULTILINE)
        assert found is not None, f"the page has set no {name}"
        return found[1]


def _has(line: str, about: tuple[str, ...]) -> bool:
    return any(text in line for text in about)
