"""The Docker engine under the tests: found, never installed.

DOCKER_HOST, or the socket of the machine ──► docker ──► docker compose (ours, if it is missing)
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

COMPOSE_MODULE = "github.com/docker/compose/v2"
COMPOSE_VERSION = "v2.40.3"
BUILD_SECONDS_MAX = 3_600
ADVICE = (
    "NOT TESTED ON AN ENGINE: no Docker engine answers at DOCKER_HOST or the default socket. "
    "On Debian, as root: apt-get install docker.io debootstrap, and start dockerd"
)


class EngineFailed(RuntimeError):
    """A command of docker failed; the text has its last lines."""


@dataclass(frozen=True, slots=True)
class Engine:
    version: str
    environment: dict[str, str]

    def run(self, *command: str, cwd: Path | None = None, check: bool = True) -> str:
        """Run a command with the engine's environment; return what it prints."""
        done = subprocess.run(
            command,
            env=self.environment,
            cwd=cwd,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=BUILD_SECONDS_MAX,
        )
        if check and done.returncode != 0:
            told = "\n".join((done.stdout + done.stderr).splitlines()[-40:])
            raise EngineFailed(f"{' '.join(command)[:200]}: exit code {done.returncode}\n{told}")
        return done.stdout

    def docker(self, *words: str, check: bool = True) -> str:
        return self.run("docker", *words, check=check)

    def has_image(self, name: str) -> bool:
        return bool(self.docker("image", "ls", "--quiet", name).strip())


def find_engine(tools: Path) -> Engine | None:
    """Return the engine that answers, with Compose beside its client; None if none answers."""
    environment = dict(os.environ)
    if shutil.which("docker") is None:
        return None
    asked = subprocess.run(
        ["docker", "version", "--format", "{{.Server.Version}}"], capture_output=True, text=True
    )
    if asked.returncode != 0:
        return None
    if subprocess.run(["docker", "compose", "version"], capture_output=True).returncode != 0:
        environment["DOCKER_CONFIG"] = str(_build_compose(tools))
    return Engine(asked.stdout.strip(), environment)


def _build_compose(tools: Path) -> Path:
    """Build Compose from its Go module; return the directory of a client that has it."""
    plugin = tools / "docker" / "cli-plugins" / "docker-compose"
    if not plugin.exists():
        told = _run(["go", "mod", "download", "-json", f"{COMPOSE_MODULE}@{COMPOSE_VERSION}"])
        source = tools / "compose-source"  # its go.mod forbids `go install`
        shutil.rmtree(source, ignore_errors=True)
        shutil.copytree(json.loads(told)["Dir"], source)
        _run(["chmod", "-R", "u+w", str(source)])
        version = f"-s -w -X {COMPOSE_MODULE}/internal.Version={COMPOSE_VERSION}"
        plugin.parent.mkdir(parents=True, exist_ok=True)
        _run(["go", "build", "-trimpath", "-ldflags", version, "-o", str(plugin), "./cmd"], source)
        shutil.rmtree(source)
    return plugin.parents[1]


def _run(command: list[str], cwd: Path | None = None) -> str:
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=BUILD_SECONDS_MAX
    )
    if done.returncode != 0:
        raise EngineFailed(f"{' '.join(command)[:200]}\n{done.stderr[-2_000:]}")
    return done.stdout
