"""A publisher's configuration."""

from __future__ import annotations

from typing import Any

import msgspec

from jobs.core.publish.protocol import Configuration, ResultColumns

PARTITIONS = 3


def configuration(address: str, topic: str, **changed: Any) -> Configuration:
    made = Configuration(
        job="items",
        generation=1,
        connection={"bootstrap.servers": address},
        topic=topic,
        format="changelog-json",
        partitions=PARTITIONS,
        delivery="exactly_once",
        columns=ResultColumns(
            group=[("name", "STRING")], output=[("name", "STRING"), ("n", "BIGINT")]
        ),
        transactional_id=f"retally-{topic}",
    )
    return msgspec.structs.replace(made, **changed)
