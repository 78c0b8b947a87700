"""Keep the committed rows of one bucket of a side of a join in files of this host.

    rows          stamp, identity, and which runs there are; not whole if a process died meanwhile
    run-NAME      a run of an arrangement, which never changes (jobs.edge.rows.arranged_rows)
    bucket.lock   an OS lock: a change holds it
    redo          the changes of an epoch that may be committed

It is a cache of the table and holds committed epochs only. Nothing is synced to disk: another boot
id in the identity means that power may have been lost. A run is checked when a process opens it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import msgspec
import numpy as np
import pyarrow as pa

from jobs.core.fold.state import Stamp
from jobs.core.join.stages import Side
from jobs.core.rows.consolidate import Integers
from jobs.edge.process.failpoints import failpoint
from jobs.edge.rows.arranged_rows import Arrangement, KeyedRows, Run
from jobs.edge.rows.long_texts import split_rows
from jobs.edge.rows.packed_rows import canonical
from jobs.edge.rows.row_codes import Codes
from jobs.edge.rows.time_columns import OF_GROUPS
from jobs.edge.state.bucket_lock import hold_bucket
from jobs.edge.state.bucket_states import CommittedState, StateFiles, StateSource
from jobs.edge.state.errors import HotStateError, StampMoved
from jobs.edge.state.open_states import OpenStates
from jobs.edge.state.redo_files import find_checked, find_redo, store_checked, store_redo
from jobs.edge.table.epoch_files import layout_of
from jobs.reading.parts import ACCUMULATORS
from schemas import limits
from schemas.process.kernel import BOOT_ID

VERSION = 3  # of the files and of the codes in them
_CODE, _WEIGHT = "code", "weight"


class SideChange(NamedTuple):
    """Changed rows of a side, each once."""

    run: Run
    are_totals: bool  # weights are those after the change


Steps = Iterable[tuple[Stamp, SideChange | None]]


class _RunFile(msgspec.Struct, frozen=True, array_like=True):
    name: str
    size: int
    check: int
    is_plain: bool


class _Rows(msgspec.Struct, frozen=True, array_like=True):
    """What the file `rows` has."""

    epoch: int
    uuid: str
    generation: int
    runs: list[_RunFile]


_decode = msgspec.msgpack.Decoder(_Rows).decode


class ArrangementState:
    """The rows of one bucket, committed up to a stamp."""

    def __init__(
        self,
        directory: Path,
        plan: str,
        keys: int,
        *,
        lock_seconds: float = limits.BUCKET_LOCK_SECONDS_MAX,
    ) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.directory = directory
        self.plan = plan
        self._keys = keys
        self._lock_seconds = lock_seconds
        text = f"{VERSION}\n{plan}\n{BOOT_ID.read_text().strip()}"
        self._identity = blake2b(text.encode(), digest_size=16).hexdigest()
        self._path = directory / "rows"
        self._seen: bytes | None = None  # what the file had when it was read last
        self._stamp: Stamp | None = None
        self._runs: list[tuple[_RunFile, Run]] = []

    def read_stamp(self) -> Stamp | None:
        """Return the state's stamp; None if there is none, or a file is damaged."""
        content = find_checked(str(self._path), self._identity)
        if content is None:
            self._forget()
        elif content != self._seen:
            try:
                self._load(content)
            except (OSError, ValueError, msgspec.DecodeError):  # pa.ArrowInvalid is a ValueError
                self._forget()
        return self._stamp

    def at(self, base: Stamp) -> Arrangement:
        """Return the rows at `base`; raise StampMoved if they are at another stamp."""
        self._require_stamp(base)
        return Arrangement([run for _, run in self._runs])

    def advance(self, steps: Steps, *, since: Stamp | None) -> None:
        """Apply committed epochs in order and set the stamp of the last one."""
        with hold_bucket(self.directory, self._lock_seconds):
            self._require_stamp(since)
            self._apply(steps)

    def rebuild(self, steps: Steps, *, since: Stamp | None) -> None:
        """Delete everything and apply the whole state; raise StampMoved unless at `since`."""
        with hold_bucket(self.directory, self._lock_seconds):
            self._require_stamp(since)
            self.reset()
            self._apply(steps)

    def reset(self) -> None:
        """Delete all files, the one first without which the others mean nothing."""
        self._forget()
        self._path.unlink(missing_ok=True)
        self._delete_runs(keep=())

    def remember(self, epoch: int, uuid: str, run: Run) -> None:
        """Store the changes of an uncommitted epoch, to apply them once it is committed."""
        store_redo(self.directory, self._redo_name(epoch, uuid), _encode(run))

    def recall(self, stamp: Stamp) -> SideChange | None:
        """Return the changes that `remember` stored for an epoch; None if there are none here."""
        data = find_redo(self.directory, self._redo_name(stamp.epoch, stamp.uuid))
        if data is None:
            return None
        rows, codes = self._to_rows(pa.ipc.open_file(pa.py_buffer(data)).read_all())
        return SideChange(Run.in_order(rows, codes), are_totals=False)

    def _redo_name(self, epoch: int, uuid: str) -> str:
        return f"{epoch}-{uuid}-{self._identity}"

    def _apply(self, steps: Steps) -> None:
        rows, reached = Arrangement([run for _, run in self._runs]), self._stamp
        for stamp, change in steps:
            if change is not None:
                run = change.run
                if change.are_totals:
                    weights = run.rows.weights - rows.weigh_rows(run)
                    run = run.with_weights(weights)
                rows = rows.add(run)
                failpoint("hot_state_half_built")
            reached = stamp
        if reached is not None:
            self._store(rows, reached)

    def _store(self, rows: Arrangement, stamp: Stamp) -> None:
        """Write the runs that are new, then what the state is from now on."""
        known = {id(run): file for file, run in self._runs}
        files = [known.get(id(run)) or self._write(run) for run in rows.runs]
        content = msgspec.msgpack.encode(_Rows(*stamp, files))
        failpoint("hot_state_written")
        with self._explain_errors():
            store_checked(str(self._path), self._identity, content)
        # A large run that is new is mapped, and no longer in the memory of this process.
        self._runs = [
            (file, run)
            for file, run in zip(files, rows.runs, strict=True)
            if id(run) in known or file.size < limits.RUN_BYTES_IN_MEMORY_MAX
        ]
        self._load(content)
        self._delete_runs(keep=[file.name for file in files])

    def _write(self, run: Run) -> _RunFile:
        data = _encode(run)
        name = f"run-{uuid4().hex[:16]}"
        with self._explain_errors():
            (self.directory / name).write_bytes(data)
        return _RunFile(name, len(data), zlib.crc32(data), run.is_plain)

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise HotStateError(
                f"{self.directory}: {error.strerror}; check for a full disk"
            ) from error

    def _load(self, content: bytes) -> None:
        """Open the runs that are not open."""
        found = _decode(content)
        known = {file.name: run for file, run in self._runs}
        self._runs = [(file, known.get(file.name) or self._open(file)) for file in found.runs]
        self._stamp = Stamp(found.epoch, found.uuid, found.generation)
        self._seen = content

    def _open(self, file: _RunFile) -> Run:
        maps = file.size >= limits.RUN_BYTES_IN_MEMORY_MAX
        # What Arrow has mapped stays so without the descriptor, which Python's mmap keeps.
        with (pa.memory_map if maps else pa.OSFile)(str(self.directory / file.name)) as opened:
            data = opened.read_buffer()
        if data.size != file.size or zlib.crc32(data) != file.check:
            raise ValueError(f"{file.name} is damaged")
        table = pa.ipc.open_file(data).read_all()
        rows, codes = self._to_rows(table)
        return Run(rows, codes, file.is_plain)

    def _to_rows(self, table: pa.Table) -> tuple[KeyedRows, Codes]:
        columns = {name: table[name].chunk(0) for name in table.column_names}
        codes = columns.pop(_CODE).to_numpy()
        weights = columns.pop(_WEIGHT).to_numpy()
        arrays = list(columns.values())
        rows = KeyedRows(arrays[: self._keys], arrays[self._keys :], weights)
        return rows, codes

    def _forget(self) -> None:
        self._stamp, self._runs, self._seen = None, [], None

    def _delete_runs(self, keep: Iterable[str]) -> None:
        """Delete the runs that are not kept; whoever has one open goes on with it."""
        kept = set(keep)
        for path in self.directory.glob("run-*"):
            if path.name not in kept:
                path.unlink(missing_ok=True)

    def _require_stamp(self, expected: Stamp | None) -> None:
        found = self.read_stamp()
        if found != expected:
            raise StampMoved(f"{self.directory}: the state is at {found}, not at {expected}")


def _encode(run: Run) -> pa.Buffer:
    named = {str(n): column for n, column in enumerate([*run.rows.keys, *run.rows.columns])}
    named |= {_WEIGHT: pa.array(run.rows.weights), _CODE: pa.array(run.codes)}
    table = pa.table(named).combine_chunks()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as file:
        file.write_table(table)
    return sink.getvalue()


_states = OpenStates[ArrangementState]()


class SideStates:
    """The states of the buckets of a side, and their rows in the table."""

    def __init__(self, committed: CommittedState, side: Side) -> None:
        self._side = side
        self._plan = side.state.fingerprint
        self._layout = layout_of(side.state)
        self._keys = len(side.inputs.group)
        self._source = StateSource(committed, (ACCUMULATORS,), "bucket")
        self.files = StateFiles(committed.root, self._layout, (ACCUMULATORS,))
        self._schema = self._layout.schema(ACCUMULATORS)

    def catch_up(self, bucket: int) -> ArrangementState:
        """Bring the state of a bucket to the task's base and return it."""
        directory, plan, keys = self._source.directory(bucket), self._plan, self._keys

        def fits(state: ArrangementState) -> bool:
            return state.plan == plan and directory.exists()

        state = _states.open(directory, fits, lambda: ArrangementState(directory, plan, keys))

        def read(named: Iterable[tuple[str, str]]) -> Iterator[SideChange]:
            for part, name in named:
                if part == ACCUMULATORS:
                    rows = self.files.rows_of(bucket, name)
                    for piece in split_rows(rows, limits.TASK_BYTES_MAX) if rows.num_rows else ():
                        yield SideChange(Run.of(self._read(piece)), are_totals=True)

        self._source.catch_up(state, read)
        return state

    def _read(self, table: pa.Table) -> KeyedRows:
        """Return rows of the table with their weights; the last row of several counts."""
        names = [name for name, _ in self._layout.group]
        columns = [canonical(table[name].cast(self._schema.field(name).type)) for name in names]
        weights = table[self._layout.program.cells[0].name].to_numpy().astype(np.int64)
        rows = KeyedRows(columns[: self._keys], columns[self._keys :], weights)
        return rows.take(rows.find_lasts())

    def to_table(self, epoch: int, bucket: int, rows: KeyedRows, totals: Integers) -> pa.Table:
        """Return changed rows, with their new weights, as rows of the table."""
        count = len(totals)
        times = {name: pa.nulls(count, kind) for name, kind in OF_GROUPS.items()}
        below = totals < 0
        if below.any():  # a row below zero is state, though no reader sees it
            for name in ("withheld", "window_closed"):
                times[name] = pa.array(np.zeros(count, np.bool_), mask=~below)
        weights = pa.array(totals)
        columns = [
            pa.repeat(pa.scalar(epoch, pa.int64()), count),
            pa.repeat(pa.scalar(bucket, pa.int32()), count),
            pa.array(totals <= 0),
            *times.values(),
            *rows.keys,
            *rows.columns,
            weights,
            weights,
        ]
        return pa.table(columns, schema=self._schema)
