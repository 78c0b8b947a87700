"""A real canal between a database and a broker: flat messages, at least once.

binlog ──► canal ──► topic shop_TABLE, 4 partitions, by the hash of the primary key
"""

from __future__ import annotations

import json

from tests.cdc.artifacts import HERE, canal_classpath
from tests.cdc.child import Child
from tests.cdc.database import READER, SCHEMA
from tests.cdc.source import PARTITIONS, SMALL_JVM, Source
from tests.support.jobs.running_job import create_topic

BEGINNING = "binlog.000001:4"
BY_CUSTOMER = "by_customer"  # the table whose topic is hashed by a column that changes


class Canal(Source):
    format = "canal-json"
    zone = "UTC"  # of canal's JVM, in which it writes TIMESTAMP columns

    def topic(self, table: str) -> str:
        return f"{SCHEMA}_{table}"

    def start(self) -> None:
        create_topic(self.brokers, SCHEMA, PARTITIONS)  # for statements that have no table
        settings = {
            "home": self.home / "state",
            "port": self.database.port,
            "user": READER,
            "password": READER,
            "filter": rf"{SCHEMA}\\..*",
            "start": BEGINNING,
            "brokers": self.brokers,
            "partitions": PARTITIONS,
            "topic": SCHEMA,
            "dynamicTopic": rf"{SCHEMA}\\..*",
            "partitionHash": rf"{SCHEMA}.{BY_CUSTOMER}:customer,{SCHEMA}\\..*:$pk$",
        }
        file = self.home / "canal.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        (self.home / "state").mkdir(exist_ok=True)
        log = self.home / "log"
        log.unlink(missing_ok=True)
        options = [
            "-Dfile.encoding=UTF-8",
            f"-Duser.timezone={self.zone}",
            f"-Dlogback.configurationFile={HERE / 'canal' / 'logback.xml'}",
        ]
        classes = ["-cp", canal_classpath(), "CanalRig", str(file)]
        self._child = Child(["java", *SMALL_JVM, *options, *classes], log)
        self._child.await_that("reading", lambda: "canal reads" in log.read_text())

    def set_back(self) -> None:
        """Let a killed canal start at the beginning of the binlog, as if its position was lost."""
        for position in (self.home / "state").rglob("meta.dat"):
            position.unlink()

    def _ids(self, text: str) -> list[str]:
        return [row["id"] for row in json.loads(text)["data"] or ()]
