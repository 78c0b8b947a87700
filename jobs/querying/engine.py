"""Answer one statement over given tables in DuckDB, which reaches nothing else.

    Arrow tables ──► views of a database in memory ──► settings locked ──► SELECT ──► Arrow

The statement is a user's. So it has a database of its own, and runs under limits of time, memory
and rows. It is one SELECT; files, network, extensions and settings are closed before it is run.
"""

from __future__ import annotations

import re
import resource
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

import duckdb
import msgspec
import pyarrow as pa

from jobs.querying.statement import ANSWER_TOO_LARGE, StatementRefused, find_explained
from schemas import limits
from schemas.limits import SQL_BATCH_ROWS
from schemas.process.kernel import read_process_memory

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
    "errors_as_json": "true",  # with the position in the statement
}
# Types whose values in Arrow are others: -1 for 2^128 - 1, a time without its zone.
_NOT_IN_ARROW = ("UHUGEINT", "BIGNUM", "BIT", "TIME WITH TIME ZONE")
_NO_SCHEMA = re.compile(r'Table with name "(.+)" does not exist because schema')
_PUBLIC = re.compile(r"\bpublic\b", re.IGNORECASE)
# The states that PostgreSQL has for an error of DuckDB.
_CODES = {
    "Parser Error": "42601",
    "Syntax Error": "42601",
    "Binder Error": "42703",
    "Catalog Error": "42883",
    "Conversion Error": "22P02",
    "Out of Range Error": "22003",
    "Invalid Input Error": "22023",
    "Not implemented Error": "0A000",
    "Permission Error": "42501",
}
_LOCKS = (
    "SET TimeZone = 'UTC'",  # not that of the machine
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)


class MissingTable(StatementRefused):
    """The statement reads a table that is not there."""


class _EngineError(msgspec.Struct):
    """What DuckDB writes of an error, with `errors_as_json`."""

    exception_message: str
    position: str | None = None  # in the bytes of the statement
    name: str | None = None
    type: str | None = None
    error_subtype: str | None = None


def open_database() -> duckdb.DuckDBPyConnection:
    """Return an empty database in memory, for one statement; it takes some milliseconds."""
    return duckdb.connect(":memory:", config=dict(_CONFIG))


def answer(
    sql: str,
    tables: Mapping[str, pa.Table],
    seconds_max: float = limits.SQL_SECONDS_MAX,
    abandon: Callable[[], None] = lambda: None,
    database: duckdb.DuckDBPyConnection | None = None,
    parameters: Sequence[object] = (),
    definitions: Sequence[str] = (),
    describes: bool = False,
) -> pa.Table:
    """Return the rows of a SELECT; raise StatementRefused with the reason if there are none.

    `definitions` are executed before it, in the schemas pg and info. With `describes` there are
    columns, and no rows.

    DuckDB does not notice an interrupt inside one call of a function. If it is still at work
    SQL_GRACE_SECONDS after its time, a thread calls `abandon`, which may end the process.
    `database` is a new one, which this closes.
    """
    with database or open_database() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        _define(connection, sql, tables, definitions)
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
            return _run(connection, sql, list(parameters), describes)
        except duckdb.InterruptException:
            raise StatementRefused(describe_lateness(seconds_max), code="57014") from None
        except duckdb.OutOfMemoryException:
            size = limits.SQL_MEMORY_BYTES_MAX // 2**20
            raise StatementRefused(
                f"the answer needs more than {size} MiB of memory; ask for less", code="53200"
            ) from None
        except duckdb.Error as error:
            raise _refuse(sql, str(error).strip()) from None
        finally:
            for timer in timers:
                timer.cancel()


def _define(
    connection: duckdb.DuckDBPyConnection,
    sql: str,
    tables: Mapping[str, pa.Table],
    definitions: Sequence[str],
) -> None:
    """Define what a statement needs beside its tables; `public.items` is the table of a job."""
    if definitions:
        connection.execute("CREATE SCHEMA pg; CREATE SCHEMA info; SET search_path = 'pg'")
        for definition in definitions:
            connection.execute(definition)
    if _PUBLIC.search(sql) is not None:
        connection.execute("CREATE SCHEMA public")
        for name in tables:
            connection.execute(f'CREATE VIEW public."{name}" AS FROM temp.main."{name}"')


def describe_lateness(seconds_max: float = limits.SQL_SECONDS_MAX) -> str:
    """Return the reason of a statement that took too long."""
    return f"the answer takes more than {seconds_max:g} s; ask for less"


@contextmanager
def limit_process() -> Iterator[None]:
    """Bound what a statement can take of the machine, whatever DuckDB does.

    The limits are soft ones, and end with the statement: the process goes on after it.
    """
    spent = resource.getrusage(resource.RUSAGE_SELF)
    # Later than the end that has a sentence, also if several cores work on the statement.
    own = 4 * (limits.SQL_SECONDS_MAX + limits.SQL_GRACE_SECONDS)
    seconds = int(spent.ru_utime + spent.ru_stime + own)
    memory = read_process_memory()
    wanted = {
        resource.RLIMIT_CPU: seconds,
        resource.RLIMIT_DATA: (memory.data if memory else 0) + limits.SQL_PROCESS_BYTES_MAX,
        resource.RLIMIT_CORE: 0,
    }
    before = {which: resource.getrlimit(which) for which in wanted}
    for which, soft in wanted.items():
        hard = before[which][1]
        bounded = soft if hard == resource.RLIM_INFINITY else min(soft, hard)
        resource.setrlimit(which, (bounded, hard))
    try:
        yield
    finally:
        for which, limit in before.items():
            resource.setrlimit(which, limit)


def _refuse(sql: str, text: str) -> StatementRefused:
    """Return the refusal for an error of DuckDB, `Binder Error: {JSON}`."""
    kind, _, document = text.partition(": ")
    try:
        error = msgspec.json.decode(document, type=_EngineError)
    except msgspec.DecodeError:
        return StatementRefused(text)
    position = None
    written = sql.encode()
    if error.position is not None and int(error.position) <= len(written):
        position = len(written[: int(error.position)].decode("utf-8", "ignore"))
    message = error.exception_message.strip()
    if (missing := _NO_SCHEMA.match(message)) is not None:
        return MissingTable(f"there is no view {missing[1]!r}", position, "42P01")
    if error.error_subtype == "MISSING_ENTRY" and error.type == "Table":
        return MissingTable(f"there is no job {error.name!r}", position, "42P01")
    return StatementRefused(f"{kind}: {message}", position, _CODES.get(kind, "42000"))


def _kind_of(statement: duckdb.Statement) -> str:
    try:
        return statement.type.name
    except ValueError:  # a kind that DuckDB has no name for, such as UPDATE EXTENSIONS
        return "this statement"


def _run(
    connection: duckdb.DuckDBPyConnection, sql: str, parameters: list[object], describes: bool
) -> pa.Table:
    statements = connection.extract_statements(sql)
    if len(statements) != 1:
        raise StatementRefused(f"there are {len(statements)} statements; write one SELECT")
    kind = _kind_of(statements[0])
    if kind == "MULTI":
        raise StatementRefused("PIVOT needs its values here: PIVOT ... ON column IN ('a', 'b')")
    if kind not in _ALLOWED:
        reason = f"{kind} is not possible; results can only be read, with SELECT"
        raise StatementRefused(reason, code="25006")
    if kind == "EXPLAIN":
        _check_explained(connection, sql)
    try:
        relation = connection.sql(statements[0].query, params=parameters or None)
    except (duckdb.InterruptException, duckdb.OutOfMemoryException):
        raise
    except duckdb.Error:
        connection.execute(sql, parameters)  # the same error, but with its position
        raise
    if describes:
        relation = relation.limit(0)
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
                "the results",
                code="54000",
            )
        if size > limits.SQL_ANSWER_BYTES_MAX:
            raise StatementRefused(ANSWER_TOO_LARGE)
    return pa.Table.from_batches(batches, reader.schema)
