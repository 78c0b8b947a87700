"""A real Debezium on Kafka Connect between a database and a broker: a snapshot, then changes.

binlog ──► connector in a standalone worker ──► topic dbz.shop.TABLE, by the record's key
"""

from __future__ import annotations

import json

from jobs.edge.process.broker import free_port
from tests.cdc.artifacts import debezium_classpath
from tests.cdc.child import Child
from tests.cdc.database import READER, SCHEMA
from tests.cdc.source import PARTITIONS, SMALL_JVM, Source

PREFIX = "dbz"
CONNECTORS = {
    "mariadb": "io.debezium.connector.mariadb.MariaDbConnector",
    "mysql": "io.debezium.connector.mysql.MySqlConnector",
}


class Debezium(Source):
    format = "debezium-json"

    def topic(self, table: str) -> str:
        return f"{PREFIX}.{SCHEMA}.{table}"

    def start(self) -> None:
        worker = {
            "bootstrap.servers": self.brokers,
            "listeners": f"http://127.0.0.1:{free_port('127.0.0.1')}",
            "key.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "offset.storage.file.filename": self.home / "offsets",
            "offset.flush.interval.ms": 1_000,
            "plugin.discovery": "only_scan",
        }
        connector = {
            "name": "rig",
            "connector.class": CONNECTORS[self.database.kind],
            "database.hostname": "127.0.0.1",
            "database.port": self.database.port,
            "database.user": READER,
            "database.password": READER,
            "database.server.id": 4300,
            "table.include.list": ",".join(f"{SCHEMA}.{table}" for table in self.tables),
            "topic.prefix": PREFIX,
            "topic.creation.default.partitions": PARTITIONS,
            "topic.creation.default.replication.factor": 1,
            "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
            "schema.history.internal.file.filename": self.home / "schema-history",
            "bigint.unsigned.handling.mode": "precise",  # otherwise 2^63 and more are negative
            "enable.time.adjuster": "false",  # otherwise the year 1 is 2001
        }
        if self.database.kind == "mariadb":
            connector["database.ssl.mode"] = "disable"
        files = []
        for name, settings in (("worker", worker), ("connector", connector)):
            files.append(self.home / f"{name}.properties")
            files[-1].write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        main = ["-cp", debezium_classpath(), "org.apache.kafka.connect.cli.ConnectStandalone"]
        self._child = Child(["java", *SMALL_JVM, *main, *map(str, files)], self.home / "log")

    def _ids(self, text: str) -> list[str]:
        after = json.loads(text)["payload"]["after"]
        return [str(after["id"])] if after else []
