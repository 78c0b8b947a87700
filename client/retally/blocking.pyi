"""Made by setup/client_types.py; do not change it by hand."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from datetime import datetime
from typing import Literal, Protocol, Self

import pandas
import polars
import pyarrow

from retally.addresses import (
    AsOf,
    Key,
    Offset,
    Spec,
)
from retally.documents import (
    AuditLogLine,
    DifferingGroup,
    Explained,
    History,
    Job,
    JobOffsets,
    Listing,
    LogLine,
    Operation,
    PlanNode,
    Quarantined,
    Result,
    Savepoint,
    Topics,
    Valid,
    View,
    Watermarks,
)
from retally.following import Event
from retally.results import Row

class HasArrow(Protocol):
    def to_arrow(self) -> pyarrow.Table: ...

class Frames:
    """What has a `to_arrow` also has these."""

    def to_pandas(self: HasArrow) -> pandas.DataFrame:
        """Return the rows as a pandas DataFrame; needs `retally-client[pandas]`."""

    def to_polars(self: HasArrow) -> polars.DataFrame:
        """Return the rows as a polars DataFrame; needs `retally-client[polars]`."""

class Results(Frames):
    """The rows of a job; nothing is requested before a method is called.

    `epoch` is that of the rows which were read last.
    """

    epoch: int | None

    def rows(self) -> list[Row]:
        """Return the rows as dicts; whole numbers beyond 2^53 and decimals are text."""

    def __iter__(self) -> Iterator[Row]: ...
    def to_arrow(self) -> pyarrow.Table:
        """Return the rows as an Arrow table with the types of the job's table.

        It needs `retally-client[arrow]`.
        """

class Answer(Frames):
    """The answer of a SQL statement, which runs when a method is called.

    `epochs` has the epoch of each table that the statement has read.
    """

    epochs: dict[str, int]
    columns: dict[str, str]

    def rows(self) -> list[Row]:
        """Return the rows as dicts; whole numbers beyond 2^53 and decimals are text."""

    def to_arrow(self) -> pyarrow.Table:
        """Return the rows as a table with the types of the answer."""

    def read(self, form: str) -> bytes:
        """Return the answer as the service writes it: `json`, `csv` or `arrow`."""

class Client:
    """One service; its methods may run at the same time. Each stream has its own connection."""

    address: str

    @classmethod
    def connect(cls, address: str, token: str | None = None, *, seconds: float = 90.0) -> Self: ...
    def __repr__(self) -> str: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    def close(self) -> None: ...
    def results(
        self,
        name: str,
        *,
        where: str | Sequence[str] = (),
        order: str | None = None,
        limit: int | None = None,
        as_of: AsOf | None = None,
        min_epoch: int | None = None,
        after_offset: Offset | None = None,
        wait: float | None = None,
    ) -> Results:
        """Return the rows that meet all conditions, such as `n>=10`; all of them of one epoch.

        `order` is such as `-n,name`. With `min_epoch` or `after_offset`, the service waits up to
        `wait` seconds until the results include that epoch or record.
        """

    def group(
        self,
        name: str,
        key: Key,
        *,
        as_of: AsOf | None = None,
        min_epoch: int | None = None,
        after_offset: Offset | None = None,
        wait: float | None = None,
    ) -> Result:
        """Return one group with its epoch; without such a group, raise Refused group-unknown."""

    def explain(self, name: str, key: Key) -> Explained:
        """Return why a group has its values: its values with their counts, epochs, offsets."""

    def history(self, name: str, key: Key, *, limit: int = 1000) -> History:
        """Return the changes of a group, as far as they are kept."""

    def diff(self, name: str, first: int, last: int | None = None) -> list[DifferingGroup]:
        """Return the groups whose results differ between two epochs, with both rows."""

    def views(self, name: str) -> list[View]:
        """Return the views of a job; a job with one query has none."""

    def results_of_views(
        self,
        name: str,
        *views: str,
        limit: int = 1000,
        as_of: AsOf | None = None,
        min_epoch: int | None = None,
    ) -> dict[str, Listing]:
        """Return the first rows of several views; all of them are of one epoch."""

    def epoch_at(self, name: str, moment: datetime | int) -> int:
        """Return the newest epoch that was committed by a time; a number is milliseconds."""

    def sql(self, statement: str) -> Answer:
        """Return the answer of a SELECT over the results of all jobs.

        Each job is a table; `items AT EPOCH 41` is its past.
        """

    def wait(
        self,
        name: str,
        *,
        epoch: int | None = None,
        offset: Offset | None = None,
        seconds: float = 60.0,
    ) -> int:
        """Wait until the results include an epoch or a record, and return their epoch.

        Raise TimeoutError after `seconds`.
        """

    def follow(
        self,
        name: str,
        since: int | str | None = None,
        *,
        snapshot: bool = False,
        key: Key = None,
        patience: float = 60.0,
        resnapshot: bool = False,
    ) -> Generator[Event]:
        """Yield the changes after a position, without end; by default after the newest epoch.

        A Progress follows each epoch; its `position` is a later `since`. Columns precede an epoch
        in which the query changed. A lost connection is opened again for up to `patience` seconds,
        and the stream continues after its last change.

        The rows of a snapshot have seq -1. If the position is no longer kept, the stream raises
        Gap. With `resnapshot` it yields Restarted and a new snapshot instead; so it does after a
        cut inside a snapshot.
        """

    def jobs(self, state: str | None = None, *, label: str | None = None) -> list[Job]:
        """Return all jobs, or those in a state such as `FAILED`, or with a label."""

    def job(self, name: str) -> Job: ...
    def validate(self, spec: Spec) -> Valid:
        """Return the columns and notes of a spec; raise Refused spec-invalid with all mistakes."""

    def put(
        self,
        spec: Spec,
        name: str | None = None,
        *,
        create: bool = False,
        revision: int | None = None,
        replace: bool = False,
    ) -> Job:
        """Create a job, or change its spec; a spec is YAML text, a dict, or a Path.

        With `create`, an existing job is refused; with `revision`, a job at another revision. A
        spec that does not fit the state is refused, or with `replace` waits for `approve`.
        """

    def approve(
        self, name: str, state: Literal["keep", "replay", "drop"] | None = None
    ) -> Operation | Job:
        """Approve the pending spec; the job keeps its state, replays its topic, or drops its table.

        Without `state`, the service keeps the state if it fits the new query. The answer is an
        operation, or the job if that is all.
        """

    def delete(self, name: str, *, drop_data: bool) -> None: ...
    def start(self, name: str) -> Job: ...
    def pause(self, name: str) -> Job: ...
    def resume(self, name: str) -> Job: ...
    def stop(self, name: str) -> Job: ...
    def restart(self, name: str) -> Job: ...
    def until(self, name: str, *states: str, seconds: float = 60.0) -> Job:
        """Wait until a job is in one of these states and return it; raise TimeoutError."""

    def logs(self, name: str, *, limit: int = 100, level: str = "DEBUG") -> list[LogLine]: ...
    def plan(self, name: str) -> list[PlanNode]: ...
    def watermarks(self, name: str) -> Watermarks: ...
    def offsets(self, name: str) -> JobOffsets: ...
    def move_offsets(
        self, name: str, offsets: dict[str, dict[str, int]] | None, *, epoch: int | None = None
    ) -> Operation:
        """Move a stopped job to other offsets; None moves it to those of its source.start.

        With `epoch`, a job at another epoch is refused.
        """

    def savepoints(self, name: str) -> list[Savepoint]: ...
    def savepoint(self, name: str, called: str | None = None) -> Savepoint:
        """Create a savepoint of the newest epoch."""

    def drop_savepoint(self, name: str, called: str) -> None: ...
    def rewind(self, name: str, to: str | int) -> Operation:
        """Return a stopped job to an earlier epoch or a savepoint."""

    def clone(self, name: str, new: str, to: str | int | None = None) -> Operation:
        """Create a stopped job with the state of this one."""

    def audit(self, name: str) -> Operation:
        """Audit a job with all of its views, or one view as JOB.VIEW."""

    def quarantine(self, name: str) -> list[Quarantined]: ...
    def message(self, name: str, message: str) -> Quarantined:
        """Return a message of the quarantine, by its id, with all the bytes that were kept."""

    def replay(
        self, name: str, message: str, fixed: str | bytes | None = None, *, again: bool = False
    ) -> Operation:
        """Send a message of the quarantine, by its id, to its topic again."""

    def replay_all(self, name: str, messages: Sequence[str], *, again: bool = False) -> Operation:
        """Send messages of the quarantine to their topics again, unchanged, in this order."""

    def operations(self, name: str, *, limit: int = 100) -> list[Operation]:
        """Return the operations of a job, newest first."""

    def operation(self, identity: str) -> Operation: ...
    def wait_until_ended(self, operation: Operation, seconds: float = 600.0) -> Operation:
        """Wait until an operation is DONE or FAILED and return it; raise TimeoutError."""

    def audit_log(self, *, limit: int = 100) -> list[AuditLogLine]:
        """Return who requested which change, newest first."""

    def topics(self, connection: str = "default") -> Topics:
        """Return the topics of a connection of the service, with their offsets."""

    def suggest(self, topic: str, connection: str = "default") -> str:
        """Return a spec for a topic as YAML, from its newest messages; check it before use."""

    def metrics(self) -> str:
        """Return the metrics of the service in Prometheus' text format."""
