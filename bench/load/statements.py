"""Small SQL statements against the service, by both of its ways, in a process of their own.

python -m bench.load.statements ADDRESS PG_ADDRESS SECONDS ──► a document: for each way, times in ms

Each client has a connection, sends one statement after the other, and looks at its answer. The
first statement of all is timed alone: a service that has just started answers it.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from urllib.parse import urlsplit

import psycopg

import retally
from bench.generator import group_name

CLIENTS = 4
GROUPS_ASKED = 1_000
Ask = Callable[[str], int]  # returns the number of rows


def over_rest(address: str, seconds: float) -> list[float]:
    def ask_for(took: list[float], until: float) -> None:
        with closing(retally.connect(address)) as client:
            _ask(lambda sql: len(client.sql(sql).rows()), took, until)

    return _at_once(ask_for, seconds)


def over_postgres(address: str, seconds: float) -> list[float]:
    parts = urlsplit(address)

    def ask_for(took: list[float], until: float) -> None:
        with psycopg.connect(
            host=parts.hostname, port=parts.port, user="bench", dbname="retally", autocommit=True
        ) as connection:
            _ask(lambda sql: len(connection.execute(sql.encode()).fetchall()), took, until)

    return _at_once(ask_for, seconds)


def _at_once(ask_for: Callable[[list[float], float], None], seconds: float) -> list[float]:
    times: list[list[float]] = [[] for _ in range(CLIENTS)]
    until = time.monotonic() + seconds
    threads = [threading.Thread(target=ask_for, args=(took, until)) for took in times]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return [took for each in times for took in each]


def _ask(ask: Ask, took: list[float], until: float) -> None:
    names = random.Random(len(took))
    while time.monotonic() < until:
        name = group_name(names.randrange(GROUPS_ASKED)).decode()
        began = time.monotonic()
        rows = ask(f"SELECT * FROM served WHERE name = '{name}'")
        took.append((time.monotonic() - began) * 1_000)
        if rows > 1:
            raise ValueError(f"{rows} rows of the group {name}")


def main(arguments: list[str]) -> None:
    address, postgres, seconds = arguments
    with closing(retally.connect(address)) as client:
        began = time.monotonic()
        client.sql("SELECT 1").rows()
        first = (time.monotonic() - began) * 1_000
    document = {
        "first_ms": first,
        "REST": over_rest(address, float(seconds)),
        "PostgreSQL": over_postgres(postgres, float(seconds)),
    }
    print(json.dumps(document))


if __name__ == "__main__":
    main(sys.argv[1:])
