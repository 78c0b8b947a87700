"""MariaDB or MySQL with a binlog of rows, in a directory and on a port of its own.

statements ──► run ──► binlog ──► canal, Debezium
query ──► rows: the truth
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Literal, Self
from xml.etree import ElementTree

from jobs.edge.process.broker import free_port
from tests.cdc.artifacts import mysql_home
from tests.cdc.child import Child

Kind = Literal["mariadb", "mysql"]
SCHEMA = "shop"
READER = "reader"  # the user of canal and Debezium, and its password
STATEMENT_SECONDS_MAX = 120
# Text is compared byte by byte, without padding, as retally compares it.
BYTEWISE = {"mariadb": "utf8mb4_nopad_bin", "mysql": "utf8mb4_0900_bin"}
_NIL = "{http://www.w3.org/2001/XMLSchema-instance}nil"

Row = dict[str, str | None]


class Database:
    def __init__(self, kind: Kind, home: Path) -> None:
        self.kind = kind
        self.home = home
        self.port = free_port("127.0.0.1")
        self._child: Child | None = None

    def __enter__(self) -> Self:
        self.home.mkdir(parents=True)
        environment: dict[str, str] = {}
        options = [
            "--no-defaults",
            f"--datadir={self.home / 'data'}",
            f"--port={self.port}",
            "--bind-address=127.0.0.1",
            f"--socket={self.home / 'socket'}",
            f"--pid-file={self.home / 'pid'}",
            "--server-id=1",
            "--log-bin=binlog",
            "--binlog-format=ROW",
            "--binlog-row-image=FULL",
            "--default-time-zone=+00:00",
            "--character-set-server=utf8mb4",
            f"--collation-server={BYTEWISE[self.kind]}",
            "--sql-mode=STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION",
            "--innodb-buffer-pool-size=64M",
            "--max-allowed-packet=64M",
        ]
        if os.getuid() == 0:
            options.append("--user=root")
        if self.kind == "mysql":
            base = mysql_home()
            server = str(base / "bin" / "mysqld")
            libraries = f"{base / 'lib'}:{base / 'lib' / 'private'}"
            environment = {"LD_LIBRARY_PATH": libraries}
            # canal 1.1.7 and MariaDB's client cannot log in with MySQL's newer plugin.
            login = "--default-authentication-plugin=mysql_native_password"
            options += [f"--basedir={base}", login, "--mysqlx=OFF", "--performance-schema=OFF"]
            first = Child([server, *options, "--initialize-insecure"], self.log, environment)
            first.await_end()
        else:
            server = "mariadbd"
            install = ["mariadb-install-db", *options[:2], *options[-1:], "--skip-test-db"]
            install.append("--auth-root-authentication-method=normal")
            Child(install, self.log).await_end()
        self._child = Child([server, *options], self.log, environment)
        self._child.await_that("serving", self._serves)
        for host in ("127.0.0.1", "localhost"):
            self.run(f"CREATE USER {READER}@'{host}' IDENTIFIED BY '{READER}'", schema="")
            self.run(f"GRANT ALL ON *.* TO {READER}@'{host}'", schema="")
        self.run("RESET MASTER", schema="")
        self.run(f"CREATE DATABASE {SCHEMA}", schema="")
        return self

    def __exit__(self, *_: object) -> None:
        if self._child is not None:
            self._child.stop()

    @property
    def log(self) -> Path:
        return self.home / "log"

    def run(self, statements: str, schema: str = SCHEMA) -> str:
        """Run statements, each ended by a semicolon; return what the client prints, as XML."""
        connection = ["-h127.0.0.1", f"-P{self.port}", "-uroot", "--xml", "--binary-mode"]
        done = subprocess.run(
            ["mariadb", "--no-defaults", *connection, "--default-character-set=utf8mb4", schema],
            input=statements.encode(),
            capture_output=True,
            timeout=STATEMENT_SECONDS_MAX,
        )
        assert done.returncode == 0, done.stderr.decode()[-2_000:]
        return done.stdout.decode()

    def rows(self, query: str) -> list[Row]:
        """Return the rows of a query; values are the database's own texts."""
        found = ElementTree.fromstring(self.run(query))
        return [
            {
                str(field.get("name")): None if field.get(_NIL) else (field.text or "")
                for field in row
            }
            for row in found.iter("row")
        ]

    def _serves(self) -> bool:
        try:
            return bool(self.run("SELECT 1", schema=""))
        except AssertionError:
            return False
