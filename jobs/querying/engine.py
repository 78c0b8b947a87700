"""Answer one statement over given tables in DuckDB, which reaches nothing else.

    Arrow tables ──► views of a database in memory ──► settings locked ──► SELECT ──► Arrow

The statement is a user's. So it runs in a process of its own, under limits of time, memory and
rows. It is one SELECT; files, network, extensions and settings are closed before it is run.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

import duckdb
import pyarrow as pa

from jobs.querying.statement import ANSWER_TOO_LARGE, StatementRefused
from schemas import limits
from schemas.limits import SQL_BATCH_ROWS

_ALLOWED = ("SELECT", "EXPLAIN")
_CONFIG = {
    "memory_limit": f"{limits.SQL_MEMORY_BYTES_MAX // 2**20}MiB",
    "threads": "2",
    "temp_directory": "",  # nothing is written to a disk
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",  # no variable of this process is a table
}
_LOCKS = ("SET enable_external_access = false", "SET lock_configuration = true")


def answer(
    sql: str, tables: Mapping[str, pa.Table], seconds_max: float = limits.SQL_SECONDS_MAX
) -> pa.Table:
    """Return the rows of a SELECT; raise StatementRefused with the reason if there are none."""
    with duckdb.connect(":memory:", config=dict(_CONFIG)) as connection:
        for name, table in tables.items():
            connection.register(name, table)
        for lock in _LOCKS:
            connection.execute(lock)
        timer = threading.Timer(seconds_max, connection.interrupt)
        timer.start()
        try:
            return _run(connection, sql)
        except duckdb.InterruptException:
            raise StatementRefused(
                f"the answer takes more than {seconds_max:g} s; ask for less"
            ) from None
        except duckdb.OutOfMemoryException:
            size = limits.SQL_MEMORY_BYTES_MAX // 2**20
            raise StatementRefused(
                f"the answer needs more than {size} MiB of memory; ask for less"
            ) from None
        except duckdb.Error as error:
            raise StatementRefused(str(error).strip()[: limits.REASON_CHARACTERS_MAX]) from None
        finally:
            timer.cancel()


def _kind_of(statement: duckdb.Statement) -> str:
    try:
        return statement.type.name
    except ValueError:  # a kind that DuckDB has no name for, such as UPDATE EXTENSIONS
        return "this statement"


def _run(connection: duckdb.DuckDBPyConnection, sql: str) -> pa.Table:
    statements = connection.extract_statements(sql)
    if len(statements) != 1:
        raise StatementRefused(f"there are {len(statements)} statements; write one SELECT")
    kind = _kind_of(statements[0])
    if kind not in _ALLOWED:
        raise StatementRefused(f"{kind} is not possible; results can only be read, with SELECT")
    return collect_answer(connection.sql(statements[0].query).to_arrow_reader(SQL_BATCH_ROWS))


def collect_answer(reader: pa.RecordBatchReader) -> pa.Table:
    """Return all rows; raise StatementRefused at the first batch that makes them too many."""
    batches, rows, size = [], 0, 0
    for batch in reader:
        batches.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows > limits.SQL_ROWS_MAX:
            raise StatementRefused(
                f"the answer has more than {limits.SQL_ROWS_MAX} rows; add LIMIT, or page through "
                "the results"
            )
        if size > limits.SQL_ANSWER_BYTES_MAX:
            raise StatementRefused(ANSWER_TOO_LARGE)
    return pa.Table.from_batches(batches, reader.schema)
