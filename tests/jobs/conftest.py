"""Jobs by hand run their tasks in the test's process wherever Spark would only pass them on."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from tests.support.jobs.tasks_here import TasksHere

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    """Start the worker's session only for what a function call cannot do."""
    return cast("SparkSession", TasksHere())
