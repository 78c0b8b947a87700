"""What an image leaves out is there to be left out, and Spark works without it."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from shutil import copytree

import pytest

from setup.unused import UNUSED, remove_unused

CHECKOUT = Path(__file__).resolve().parents[2]
PACKAGES = Path(sysconfig.get_path("purelib"))
# Executors are processes of their own, as on a cluster.
WORK = """
from jobs.edge.spark.class_archive import run_batch, run_streams
from jobs.edge.spark.session import session
import pyarrow.dataset, pyspark
spark = session("pruned", "local-cluster[1,2,1024]")
run_batch(spark)
run_streams(spark)
print(pyspark.__file__, pyarrow.__file__)
"""


@pytest.mark.parametrize("pattern", UNUSED)
def test_every_pattern_names_something(pattern: str) -> None:
    """Else a new version has another name for it, and images grow in silence."""
    assert list(PACKAGES.glob(pattern))


@pytest.mark.spark
@pytest.mark.slow
def test_spark_reads_and_shuffles_without_it(tmp_path: Path) -> None:
    for package in ("pyspark", "pyarrow"):
        copytree(PACKAGES / package, tmp_path / package, copy_function=os.symlink)
    remove_unused(tmp_path)
    assert not [path for pattern in UNUSED for path in tmp_path.glob(pattern)]
    found = {
        "PYTHONPATH": f"{tmp_path}:{CHECKOUT}",
        "SPARK_HOME": str(tmp_path / "pyspark"),
        "PYSPARK_SUBMIT_ARGS": "--conf spark.authenticate.secret=secret pyspark-shell",
    }
    done = subprocess.run(
        [sys.executable, "-c", WORK],
        env={**os.environ, **found},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    assert done.stdout.count(str(tmp_path)) == 2, done.stdout
