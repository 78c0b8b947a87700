"""A publisher's configuration."""

from __future__ import annotations

from typing import Any

import msgspec

from jobs.core.publish.protocol import Configuration, ResultColumns, SinkTopic

PARTITIONS = 3


COLUMNS = ResultColumns(group=[("name", "STRING")], output=[("name", "STRING"), ("n", "BIGINT")])


def sink_topic(topic: str, **changed: Any) -> SinkTopic:
    made = SinkTopic(topic=topic, format="changelog-json", partitions=PARTITIONS, columns=COLUMNS)
    return msgspec.structs.replace(made, **changed)


def configuration(address: str, *topics: str | SinkTopic, **changed: Any) -> Configuration:
    sinks = [sink_topic(each) if isinstance(each, str) else each for each in topics]
    made = Configuration(
        job="items",
        generation=1,
        connection={"bootstrap.servers": address},
        sinks=sinks,
        delivery="exactly_once",
        transactional_id=f"retally-{sinks[0].topic}",
    )
    return msgspec.structs.replace(made, **changed)
