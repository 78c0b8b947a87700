"""The names of executors are those that their tasks report."""

from __future__ import annotations

import pytest

from jobs.edge.spark.executors import name_executor


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("10.0.0.7:41233", "10.0.0.7_3"),
        ("10.0.0.7", "10.0.0.7_3"),  # added, but not yet known with its port
        ("worker-7.example:7", "worker-7.example_3"),
        ("[2001:db8::7]:41233", "[2001:db8::7]_3"),
        ("[2001:db8::7]", "[2001:db8::7]_3"),
    ],
)
def test_an_executor_has_one_name_with_and_without_its_port(address: str, name: str) -> None:
    assert name_executor(address, "3") == name
