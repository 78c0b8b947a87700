"""deploy/release.sh, with a real git and a `docker` that only notes how it was called."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.deploy.deployment import CHECKOUT, settings

NAME = "registry.example.org/retally"
DIGEST = "sha256:" + "0f" * 32
# Knows one image of the registry, RELEASED. Notes the arguments and the input of a build; writes
# what buildx writes for --metadata-file.
DOCKER = """#!/usr/bin/env python3
import json, os, sys
if sys.argv[1:3] == ["buildx", "imagetools"]:
    sys.exit(sys.argv[3:] != ["inspect", os.environ["RELEASED"]])
noted = os.environ["NOTED"]
open(noted, "w").write(json.dumps([os.environ["SOURCE_DATE_EPOCH"], *sys.argv[1:]]))
open(noted + ".tar", "wb").write(sys.stdin.buffer.read())
document = {"buildx.build.ref": "b/b0/x", "containerimage.digest": os.environ["DIGEST"]}
place = sys.argv[sys.argv.index("--metadata-file") + 1]
open(place, "w").write(json.dumps(document, indent=2))
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with the files that count, committed and tagged."""
    root, tools = tmp_path / "checkout", tmp_path / "tools"
    (root / "deploy").mkdir(parents=True)
    tools.mkdir()
    (tools / "docker").write_text(DOCKER)
    (tools / "docker").chmod(0o755)
    for name in ("Dockerfile", ".env", "deploy/release.sh", "pyproject.toml"):
        shutil.copy(CHECKOUT / name, root / name)
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "first")
    git(root, "tag", f"v{settings()['RETALLY_VERSION']}")
    return root


def git(root: Path, *words: str) -> str:
    who = ("-c", "user.name=me", "-c", "user.email=me@example.org")
    command = ["git", "-C", str(root), *who, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def release(
    root: Path, digest: str = DIGEST, released: str = f"{NAME}:0.0.1"
) -> subprocess.CompletedProcess[str]:
    tools = f"{root.parent / 'tools'}:{os.environ['PATH']}"
    own = {"PATH": tools, "NOTED": str(root.parent / "noted")}
    own |= {"DIGEST": digest, "RELEASED": released}
    command = [str(root / "deploy" / "release.sh"), NAME]
    return subprocess.run(
        command, env={**os.environ, **own}, cwd=root.parent, capture_output=True, text=True
    )


def test_it_builds_what_is_committed_with_attestations_and_labels(checkout: Path) -> None:
    (checkout / "secret.env").write_text("not committed")
    (checkout / "Dockerfile").write_text("FROM something-else")
    done = release(checkout)
    version = settings()["RETALLY_VERSION"]
    assert (done.returncode, done.stdout) == (0, f"{NAME}:{version}@{DIGEST}\n"), done.stderr
    noted = checkout.parent / "noted"
    epoch, *words = json.loads(noted.read_text())
    assert epoch == git(checkout, "log", "-1", "--format=%ct")
    assert words[:2] == ["buildx", "build"] and words[-1] == "-"
    assert {"--sbom=true", "--provenance=mode=max", "--pull"} < set(words)
    output = words[words.index("--output") + 1].split(",")
    assert {f"name={NAME}:{version}", "push=true"} < set(output)
    given = [words[at + 1] for at, word in enumerate(words) if word == "--label"]
    labels = dict(each.removeprefix("org.opencontainers.image.").split("=", 1) for each in given)
    assert (labels["version"], labels["licenses"]) == (version, "Apache-2.0")
    assert labels["revision"] == git(checkout, "rev-parse", "HEAD")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", labels["created"])
    with tarfile.open(f"{noted}.tar") as context:
        names = set(context.getnames())
        built = context.extractfile("Dockerfile")
        assert built is not None and built.read() == (CHECKOUT / "Dockerfile").read_bytes()
    assert {"Dockerfile", "pyproject.toml"} < names
    assert "secret.env" not in names


def test_a_commit_that_is_not_its_version_s_tag_is_not_released(checkout: Path) -> None:
    git(checkout, "commit", "--allow-empty", "-qm", "later")
    done = release(checkout)
    assert done.returncode == 1
    assert "HEAD is not the tag v" in done.stderr
    assert not (checkout.parent / "noted").exists()


def test_a_released_tag_is_not_replaced(checkout: Path) -> None:
    image = f"{NAME}:{settings()['RETALLY_VERSION']}"
    done = release(checkout, released=image)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{image} is there already" in done.stderr
    assert not (checkout.parent / "noted").exists()


def test_a_commit_that_git_cannot_read_is_not_released(checkout: Path) -> None:
    blob = git(checkout, "rev-parse", "HEAD:pyproject.toml")
    (checkout / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    done = release(checkout)
    assert (done.returncode != 0, done.stdout) == (True, "")
    assert not (checkout.parent / "noted").exists()


def test_a_build_without_a_digest_is_no_release(checkout: Path) -> None:
    done = release(checkout, digest="")
    assert (done.returncode != 0, done.stdout) == (True, "")
    assert "no digest" in done.stderr
