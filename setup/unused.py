"""What packages bring along and an image never uses; only a set-up for an image removes it.

    pip ──► site-packages ──► remove_unused ──► Ivy, archive of classes

The archive of Spark's classes fits only the class path that wrote it, so the jars go before it.
"""

from __future__ import annotations

import shutil
from pathlib import Path

# Paths below site-packages. A new version may rename one: a test compares them with what is there.
UNUSED = (
    # Spark: machine learning, graphs, Connect, its shell, other cluster managers, Hive.
    "pyspark/jars/connect-repl",
    "pyspark/jars/spark-connect_*",
    "pyspark/jars/spark-graphx_*",
    # With spark-mllib-local and without breeze, Kryo would not start: it looks for its classes.
    "pyspark/jars/spark-mllib*",
    "pyspark/jars/spark-hive*",
    "pyspark/jars/spark-kubernetes_*",
    "pyspark/jars/spark-yarn_*",
    "pyspark/jars/spark-repl_*",
    "pyspark/jars/algebra_*",
    "pyspark/jars/arpack*",
    "pyspark/jars/blas-*",
    "pyspark/jars/breeze*",
    "pyspark/jars/cats-kernel_*",
    "pyspark/jars/datanucleus-*",
    "pyspark/jars/derby*",
    "pyspark/jars/hive-[!s]*",  # hive-storage-api has types that Spark's catalyst links to
    "pyspark/jars/hive-se*",
    "pyspark/jars/hive-shims*",
    "pyspark/jars/jline-*",
    "pyspark/jars/JLargeArrays-*",
    "pyspark/jars/JTransforms-*",
    "pyspark/jars/kubernetes-*",
    "pyspark/jars/lapack-*",
    "pyspark/jars/scala-compiler-*",
    "pyspark/jars/spire*",
    "pyspark/jars/vertx-*",
    "pyspark/jars/volcano-*",
    # Spark's old streams and pipelines; a master's recovery by ZooKeeper; Hive's helpers.
    "pyspark/jars/spark-streaming_*",
    "pyspark/jars/spark-pipelines_*",
    "pyspark/jars/curator-*",
    "pyspark/jars/zookeeper-*",
    "pyspark/jars/javolution-*",
    "pyspark/jars/joda-time-*",
    # State stores of Spark's own stateful streams, which no job has.
    "pyspark/jars/leveldbjni-*",
    "pyspark/jars/rocksdbjni-*",
    # Native libraries for systems that an image does not run on.
    "pyspark/jars/netty-*-osx-*",
    "pyspark/jars/netty-*-windows-*",
    # C++ headers, tests and the RPC of Arrow; copies of a library by other names, for linkers.
    "pyarrow/include",
    "pyarrow/_flight.*",
    "pyarrow/_pyarrow_cpp_tests.*",
    "pyarrow/libarrow_flight.*",
    "pyarrow/libarrow_python_flight.*",
    "pyarrow/libarrow_python*.so",
    "pyarrow/libarrow_python*.so.*.*.*",
)


def remove_unused(site_packages: Path) -> None:
    """Remove what is there of it."""
    for pattern in UNUSED:
        for path in site_packages.glob(pattern):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
