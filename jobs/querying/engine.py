"""Answer one statement over given tables in DuckDB, which reaches nothing else.

    Arrow tables ──► views of a database in memory ──► settings locked ──► SELECT ──► Arrow

The statement is a user's. So it runs in a process of its own, under limits of time, memory and
rows. It is one SELECT; files, network, extensions and settings are closed before it is run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress

import duckdb
import pyarrow as pa

from jobs.querying.statement import ANSWER_TOO_LARGE, StatementRefused, find_explained
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
    # Nothing is read or written there, and DuckDB's own names would show the user's home.
    "secret_directory": "none",
    "extension_directory": "none",
}
# Types whose values in Arrow are others: -1 for 2^128 - 1, a time without its zone.
_NOT_IN_ARROW = ("UHUGEINT", "BIGNUM", "BIT", "TIME WITH TIME ZONE")
_LOCKS = (
    "SET TimeZone = 'UTC'",  # not that of the machine
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)


def answer(
    sql: str,
    tables: Mapping[str, pa.Table],
    seconds_max: float = limits.SQL_SECONDS_MAX,
    abandon: Callable[[], None] = lambda: None,
) -> pa.Table:
    """Return the rows of a SELECT; raise StatementRefused with the reason if there are none.

    DuckDB does not notice an interrupt inside one call of a function. If it is still at work
    SQL_GRACE_SECONDS after its time, a thread calls `abandon`, which may end the process.
    """
    with duckdb.connect(":memory:", config=dict(_CONFIG)) as connection:
        for name, table in tables.items():
            connection.register(name, table)
        for lock in _LOCKS:
            connection.execute(lock)
        timers = (
            threading.Timer(seconds_max, connection.interrupt),
            threading.Timer(seconds_max + limits.SQL_GRACE_SECONDS, abandon),
        )
        for timer in timers:
            timer.daemon = True
            timer.start()
        try:
            return _run(connection, sql)
        except duckdb.InterruptException:
            raise StatementRefused(describe_lateness(seconds_max)) from None
        except duckdb.OutOfMemoryException:
            size = limits.SQL_MEMORY_BYTES_MAX // 2**20
            raise StatementRefused(
                f"the answer needs more than {size} MiB of memory; ask for less"
            ) from None
        except duckdb.Error as error:
            raise StatementRefused(str(error).strip()[: limits.REASON_CHARACTERS_MAX]) from None
        finally:
            for timer in timers:
                timer.cancel()


def describe_lateness(seconds_max: float = limits.SQL_SECONDS_MAX) -> str:
    """Return the reason of a statement that took too long."""
    return f"the answer takes more than {seconds_max:g} s; ask for less"


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
    if kind == "MULTI":
        raise StatementRefused("PIVOT needs its values here: PIVOT ... ON column IN ('a', 'b')")
    if kind not in _ALLOWED:
        raise StatementRefused(f"{kind} is not possible; results can only be read, with SELECT")
    if kind == "EXPLAIN":
        _check_explained(connection, sql)
    relation = connection.sql(statements[0].query)
    for name, of_column in zip(relation.columns, map(str, relation.types), strict=True):
        if any(each in of_column for each in _NOT_IN_ARROW):
            raise StatementRefused(
                f"column {name!r} is {of_column}, which no answer can hold; CAST it to VARCHAR"
            )
    return collect_answer(relation.to_arrow_reader(SQL_BATCH_ROWS))


def _check_explained(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    """Raise StatementRefused unless a SELECT is explained: EXPLAIN ANALYZE runs its statement."""
    for explained in find_explained(sql):
        with suppress(duckdb.ParserException):
            kinds = [_kind_of(each) for each in connection.extract_statements(explained)]
            if kinds == ["SELECT"]:
                return
    raise StatementRefused("EXPLAIN is possible for one SELECT only")


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
