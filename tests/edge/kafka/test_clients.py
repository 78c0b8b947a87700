"""confluent-kafka carries what is sent and read for each record; kafka-python does the rest."""

from __future__ import annotations

import re
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[3]
BULK = {
    "jobs/edge/kafka/array_client.py",
    "jobs/edge/kafka/range_consumer.py",
    "jobs/edge/kafka/records.py",
    "jobs/edge/publisher/session.py",
}
# It asks the embedded broker whether it serves, below the package that knows kafka-python.
READINESS = {"jobs/edge/process/broker.py"}


def test_only_bulk_goes_through_confluent_kafka() -> None:
    product = (
        path for area in ("jobs", "service", "schemas") for path in (CHECKOUT / area).rglob("*.py")
    )
    importing = {
        str(path.relative_to(CHECKOUT))
        for path in product
        if re.search(r"^\s*(from|import) confluent_kafka", path.read_text(), re.MULTILINE)
    }
    assert importing == BULK | READINESS
