"""Fetch Flink's jars with the Ivy in pyspark, and compile the small Java main."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pyspark

from bench.outcome import BenchFailed
from jobs.edge.machine.java import java
from jobs.setup.steps import proxy_options

HERE = Path(__file__).resolve().parent
SOURCE = HERE / "FlinkBench.java"
FETCH_SECONDS_MAX = 600
LOG_LINES_SHOWN = 30


def flink_classpath(out: Path) -> str:
    """Return the class path of Flink; fetch and compile it at first use, into `out`."""
    jars = out / "flink-jars"
    if _older(jars, HERE / "ivy.xml"):
        _fetch(jars)
    classes = out / "flink-classes"
    if _older(classes, SOURCE):
        _compile(jars, classes)
    return os.pathsep.join([str(classes), str(HERE), f"{jars}/*"])


def _older(made: Path, source: Path) -> bool:
    return not made.exists() or made.stat().st_mtime < source.stat().st_mtime


def _fetch(jars: Path) -> None:
    unfinished = jars.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    ivy = [str(java()), *proxy_options(), "-cp", f"{Path(pyspark.__file__).parent}/jars/*"]
    ivy += ["org.apache.ivy.Main", "-ivy", str(HERE / "ivy.xml"), "-types", "jar", "bundle"]
    if settings := os.environ.get("RETALLY_IVY_SETTINGS"):
        ivy += ["-settings", settings]
    _run([*ivy, "-retrieve", f"{unfinished}/[artifact]-[revision].[ext]"], "fetching Flink's jars")
    _replace(jars, unfinished)


def _compile(jars: Path, classes: Path) -> None:
    javac = shutil.which("javac", path=str(java().parent)) or shutil.which("javac")
    if javac is None:
        raise BenchFailed("Flink as a peer needs javac: install a JDK, or pass --skip-flink")
    unfinished = classes.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    _run([javac, "-cp", f"{jars}/*", "-d", str(unfinished), str(SOURCE)], "compiling the main")
    _replace(classes, unfinished)


def _replace(target: Path, made: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    made.rename(target)
    target.touch()


def _run(command: list[str], what: str) -> None:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=FETCH_SECONDS_MAX, check=False
    )
    if done.returncode != 0:
        tail = (done.stdout + done.stderr).splitlines()[-LOG_LINES_SHOWN:]
        raise BenchFailed(f"{what} failed:\n" + "\n".join(tail))
