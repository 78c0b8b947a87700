"""Changelog rows as Kafka records: whole Arrow columns become JSON text at once.

    Parquet files of an epoch ─► one table in seq order ─► chunks ─► columns as JSON fragments
                                                             │
        keys, values, seqs, partitions (lists of bytes) ◄── join into the format's template

Hot path: a record costs about a microsecond here, against 2.6 for a loop that builds and encodes
a dict per row. The text of a value is exactly what `json_values.renderer` would give.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from jobs.core.publish.formats import EpochFacts, PublishFormat, Slot, member, object_template
from jobs.core.publish.kafka_partition import MULTIPLIER, SEED
from jobs.core.values.change import Op
from jobs.core.values.json_values import renderer
from schemas import limits
from schemas.table.object_path import table_path
from schemas.table.parquet_file import rows_in
from schemas.types.arrow_values import from_arrow, listed
from schemas.types.sql_types import FLOATING, Kind, SqlType

NamedType = tuple[str, SqlType]

_OP, _EPOCH, _SEQ = "op", "epoch", "seq"
_NULL = "null"
_ESCAPED = r'["\\\x00-\x1f]'
_BARE = (
    Kind.BOOLEAN, Kind.TINYINT, Kind.SMALLINT, Kind.INT, Kind.BIGINT, *FLOATING, Kind.ARRAY,
)  # fmt: skip
_STAMPS = (Kind.TIMESTAMP, Kind.TIMESTAMP_LTZ)
_PLAIN_DECIMAL_SCALE_MAX = 6  # Arrow turns to exponents beyond it, as Java does
_SEED, _MULTIPLIER = np.uint32(SEED), np.uint32(MULTIPLIER)
_POSITIVE = np.uint32(0x7FFFFFFF)


class BrokenChangelog(ValueError):
    """An epoch's files do not hold a changelog: a bug of ours or a damaged file."""


@dataclass(frozen=True, slots=True)
class Records:
    """Records of one epoch, ready to be produced, in order; lists of the same length."""

    keys: list[bytes]
    values: list[bytes | None]
    seqs: list[bytes]
    partitions: list[int]
    rows: int  # of the changelog, from which they are made
    last_seq: int


# --- rows of an epoch -------------------------------------------------------------------------


def read_epoch(files: Sequence[str], epoch: int, columns: Sequence[str], after: int) -> pa.Table:
    """The epoch's rows with a seq above `after`, in seq order whatever files they lie in."""
    wanted = list(dict.fromkeys((_OP, _EPOCH, _SEQ, *columns)))
    tables = [rows_in(table_path(file), wanted, threads=False) for file in files]
    if not tables:
        return pa.table({_OP: pa.array([], pa.string()), _SEQ: pa.array([], pa.int64())})
    table = pa.concat_tables(tables)
    epochs, seqs = table[_EPOCH].to_numpy(), table[_SEQ].to_numpy()
    # Compaction may have put several epochs into a file.
    kept = (epochs == epoch) & (seqs > after)
    if not kept.all():
        table, seqs = table.filter(pa.array(kept)), seqs[kept]
    if (np.diff(seqs) <= 0).any():
        order = np.argsort(seqs, kind="stable")
        table, seqs = table.take(pa.array(order)), seqs[order]
        if (np.diff(seqs) == 0).any():
            raise BrokenChangelog(f"epoch {epoch}: two changelog rows have the same seq")
    return table.combine_chunks()


def chunks(table: pa.Table, rows_max: int = limits.PUBLISH_CHUNK_ROWS) -> Iterator[pa.RecordBatch]:
    """The table in pieces of bounded size that never part a -U from its +U."""
    if table.num_rows == 0:
        return
    ops = table[_OP]
    before = pc.equal(ops, Op.UPDATE_BEFORE.value).to_numpy(zero_copy_only=False)
    after = pc.equal(ops, Op.UPDATE_AFTER.value).to_numpy(zero_copy_only=False)
    if after[0] or before[-1] or not np.array_equal(before[:-1], after[1:]):
        raise BrokenChangelog("a -U of the changelog is not directly followed by its +U")
    batch = table.to_batches()[0]
    rows_max = min(rows_max, limits.PUBLISH_CHUNK_ROWS)
    start = 0
    while start < len(before):
        end = min(start + rows_max, len(before))
        while end - start > 1 and batch.slice(start, end - start).nbytes > (
            limits.PUBLISH_CHUNK_BYTES_MAX
        ):
            end = start + (end - start) // 2
        end += int(before[end - 1])
        yield batch.slice(start, end - start)
        start = end


# --- records ----------------------------------------------------------------------------------


class RecordWriter:
    """Turns chunks of changelog rows into records of one format."""

    def __init__(
        self,
        publish_format: PublishFormat,
        group: Sequence[NamedType],
        output: Sequence[NamedType],
        partitions: int,
        window_end: NamedType | None = None,
    ) -> None:
        self._format = publish_format if window_end is None else publish_format.of_windows()
        self._window_end = window_end
        self._group = tuple(group)
        self._output = tuple(output)
        self._partitions = partitions
        self._slots = self._format.slots()
        self._key = object_template(tuple(name for name, _ in group))
        self._row = object_template(tuple(name for name, _ in output))
        asked = [*group, *output] if window_end is None else [*group, *output, window_end]
        self.columns = tuple(dict.fromkeys(name for name, _ in asked))

    def write(self, batch: pa.RecordBatch, facts: EpochFacts) -> Records:
        typed = {name: _fragments(batch[name], kind, False) for name, kind in self._group}
        shown = {
            name: typed[name]
            if name in typed and not self._format.textual
            else _fragments(batch[name], kind, self._format.textual)
            for name, kind in self._output
        }
        size = batch.num_rows
        keys = _joined(self._key, [typed[name] for name, _ in self._group], size)
        cells = [shown[name] for name, _ in self._output]
        rows = _joined(self._row, cells, size)
        ops = batch[_OP]
        seqs = pc.cast(batch[_SEQ], pa.string())
        at = None
        if self._format.paired:
            at = np.flatnonzero(
                pc.not_equal(ops, Op.UPDATE_BEFORE.value).to_numpy(zero_copy_only=False)
            )
            keys, seqs, ops = (array.take(pa.array(at)) for array in (keys, seqs, ops))
        slots = {Slot.SEQ: seqs, Slot.ROW: rows}
        if Slot.TIME in self._slots:
            slots[Slot.TIME] = self._times(batch)
        values = self._values(slots, cells, ops, at, facts)
        return Records(
            keys=_cut(keys),
            values=self._entombed(values, ops),
            seqs=_cut(seqs),
            partitions=partitions_of(keys, self._partitions),
            rows=size,
            last_seq=batch[_SEQ][-1].as_py(),
        )

    def _values(
        self,
        slots: dict[Slot, pa.Array],
        cells: list[pa.Array],
        ops: pa.Array,
        at: npt.NDArray[np.intp] | None,
        facts: EpochFacts,
    ) -> pa.Array:
        if Slot.WORD in self._slots:
            slots[Slot.WORD] = _words(ops, self._format)
        if at is not None:
            slots |= self._images(slots[Slot.ROW], cells, ops, at)
        template = self._format.filled(facts)
        return _joined(template, slots, len(ops))

    def _times(self, batch: pa.RecordBatch) -> pa.Array:
        """The last millisecond of each row's window."""
        assert self._window_end is not None
        name, kind = self._window_end
        ends = batch[name].view(pa.int64()).to_numpy()
        if kind.kind is not Kind.BIGINT:
            ends = ends // 1_000
        return pc.cast(pa.array(ends - 1), pa.string())

    def _images(
        self,
        rows: pa.Array,
        cells: list[pa.Array],
        ops: pa.Array,
        at: npt.NDArray[np.intp],
    ) -> dict[Slot, pa.Array]:
        """What pairs need: the row before a +U is its -U, which stands directly before it."""
        here, former = pa.array(at), pa.array(np.maximum(at - 1, 0))
        row = rows.take(here)
        images = {Slot.ROW: row}
        update = pc.equal(ops, Op.UPDATE_AFTER.value)
        delete = pc.equal(ops, Op.DELETE.value)
        if Slot.BEFORE in self._slots:
            gone = pc.if_else(update, rows.take(former), _NULL)
            images[Slot.BEFORE] = pc.if_else(delete, row, gone)
        if Slot.AFTER in self._slots:
            images[Slot.AFTER] = pc.if_else(delete, _NULL, row)
        if Slot.OLD in self._slots:
            changed = self._changed(cells, here, former)
            images[Slot.OLD] = pc.if_else(update, changed, _NULL)
        return images

    def _changed(self, cells: list[pa.Array], here: pa.Array, former: pa.Array) -> pa.Array:
        """`[{..}]` with the former value of each column that is another now; text tells."""
        # Each member brings its comma, and the first comma goes: joining with nulls left out would
        # lose every row whose members are all null (Arrow 25 does).
        members = []
        for (name, _), cell in zip(self._output, cells, strict=True):
            old = cell.take(former)
            named = pc.binary_join_element_wise("," + member(name), old, "")
            members.append(pc.if_else(pc.not_equal(old, cell.take(here)), named, ""))
        inner = pc.utf8_slice_codeunits(pc.binary_join_element_wise(*members, ""), 1)
        return pc.binary_join_element_wise("[{", inner, "}]", "")

    def _entombed(self, values: pa.Array, ops: pa.Array) -> list[bytes | None]:
        texts: list[bytes | None] = list(_cut(values))
        if self._format.tombstone:
            deleted = pc.equal(ops, Op.DELETE.value).to_numpy(zero_copy_only=False)
            for at in np.flatnonzero(deleted):
                texts[at] = None
        return texts


def _words(ops: pa.Array, publish_format: PublishFormat) -> pa.Array:
    known = pa.array([op.value for op in publish_format.words])
    words = pa.array(list(publish_format.words.values()))
    return words.take(pc.index_in(ops, value_set=known))


def _joined(template: Sequence[Any], parts: Any, size: int) -> pa.Array:
    """The template with an array in each slot; all of it literal is the same text `size` times."""
    pieces = [part if type(part) is str else parts[part] for part in template]
    if all(isinstance(piece, str) for piece in pieces):
        return pa.array(["".join(pieces)] * size, pa.string())
    return pc.binary_join_element_wise(*pieces, "")


def _cut(texts: pa.Array) -> list[bytes]:
    """The texts as bytes; slicing one buffer is five times faster than Arrow's own list."""
    if len(texts) == 0:
        return []
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1].tolist()
    whole = data.to_pybytes() if data is not None else b""
    return [whole[start:end] for start, end in pairwise(ends)]


# --- JSON fragments ---------------------------------------------------------------------------


def _fragments(column: pa.Array, sql_type: SqlType, textual: bool) -> pa.Array:
    """Each value as JSON text; with `textual` every value but NULL is a JSON string."""
    text = _contents(column, sql_type)
    if textual and sql_type.kind is Kind.ARRAY:
        text = _escaped(text)
    if textual or sql_type.kind not in _BARE:
        text = pc.binary_join_element_wise('"', text, '"', "")
    elif sql_type.floating:
        finite = pc.is_finite(column)
        if not pc.all(finite).as_py():
            quoted = pc.binary_join_element_wise('"', text, '"', "")
            text = pc.if_else(finite, text, quoted)
    return pc.fill_null(text, _NULL) if text.null_count else text


def _contents(column: pa.Array, sql_type: SqlType) -> pa.Array:
    """What stands between the quotes, or the bare number or word; NULL stays NULL."""
    kind = sql_type.kind
    if kind in FLOATING:
        return _float_texts(column)
    if kind in _STAMPS:
        return _stamps(column, "Z" if kind is Kind.TIMESTAMP_LTZ else "")
    if kind is Kind.STRING:
        return _escaped(column)
    if kind is Kind.ARRAY:
        return _array_texts(column, sql_type)
    if kind is Kind.BINARY or (
        kind is Kind.DECIMAL and (sql_type.scale or 0) > _PLAIN_DECIMAL_SCALE_MAX
    ):
        render = renderer(sql_type)
        return pa.array([render(value) for value in from_arrow(column, sql_type)], pa.string())
    return column if kind is Kind.TIME else pc.cast(column, pa.string())


def _array_texts(column: pa.Array, sql_type: SqlType) -> pa.Array:
    """Arrays as JSON, made a row at a time: they are few, and long."""
    render, encode = renderer(sql_type), msgspec.json.Encoder().encode
    return pa.array(
        [
            None if value is None else encode(render(value)).decode()
            for value in from_arrow(column, sql_type)
        ],
        pa.string(),
    )


def _float_texts(column: pa.Array) -> pa.Array:
    text = pc.cast(column, pa.string())
    whole = pc.invert(pc.match_substring_regex(text, "[.en]"))  # 1 is 1.0, as other floats are
    text = pc.if_else(whole, pc.binary_join_element_wise(text, ".0", ""), text)
    if pc.all(pc.is_finite(column)).as_py() is not False:
        return text
    word = pc.if_else(pc.greater(column, 0.0), "Infinity", "-Infinity")
    word = pc.if_else(pc.is_nan(column), "NaN", word)
    return pc.if_else(pc.is_finite(column), text, word)


def _stamps(column: pa.Array, zone: str) -> pa.Array:
    """Timestamps with as many fraction digits as they need; the longer ones are text already."""
    if pa.types.is_timestamp(column.type):
        column = pc.cast(pc.cast(column, pa.timestamp("us")), pa.string())
    text = pc.utf8_rtrim(pc.utf8_rtrim(column, "0"), ".")
    return pc.binary_join_element_wise(text, zone, "") if zone else text


def _escaped(column: pa.Array) -> pa.Array:
    """Text inside a JSON string; most columns need no escape at all, and one scan tells."""
    if not pc.any(pc.match_substring_regex(column, _ESCAPED)).as_py():
        return column
    encode = msgspec.json.Encoder().encode
    return pa.array(
        [None if text is None else encode(text)[1:-1].decode() for text in listed(column)],
        pa.string(),
    )


# --- partitions -------------------------------------------------------------------------------


def partitions_of(keys: pa.Array, partitions: int) -> list[int]:
    """jobs.core.publish.kafka_partition for many keys at once: murmur2 goes word by word over all
    keys that are long enough."""
    if len(keys) == 0:
        return []
    _, offsets, data = keys.buffers()
    bounds = np.frombuffer(offsets, np.int32)[keys.offset : keys.offset + len(keys) + 1]
    bounds = bounds.astype(np.int64)
    sizes = np.diff(bounds)
    order = np.argsort(-sizes, kind="stable")  # keys that have a word w are a prefix
    starts, sizes = bounds[:-1][order], sizes[order]
    padded = (data.to_pybytes() if data is not None else b"") + b"\0\0\0\0"
    words = np.ndarray((len(padded) - 3,), "<u4", padded, strides=(1,))  # one at every byte
    multiplier = _MULTIPLIER
    state = _SEED ^ sizes.astype(np.uint32)
    whole = sizes >> 2
    for at in range(int(whole[0])):
        count = int(np.searchsorted(-whole, -at, side="left"))
        word = words[starts[:count] + 4 * at] * multiplier
        word = (word ^ (word >> np.uint32(24))) * multiplier
        state[:count] = (state[:count] * multiplier) ^ word
    rest = sizes & 3
    mask = (np.uint32(1) << (rest * 8).astype(np.uint32)) - np.uint32(1)
    tail = words[starts + 4 * whole] & mask
    state = np.where(rest > 0, (state ^ tail) * multiplier, state)
    state = (state ^ (state >> np.uint32(13))) * multiplier
    state ^= state >> np.uint32(15)
    result = np.empty(len(keys), np.int64)
    result[order] = (state & _POSITIVE) % partitions
    return result.tolist()
