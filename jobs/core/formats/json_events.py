"""Decode plain JSON events: each message is an insert, and a column may be a nested field.

    {"id": 7, "user": {"city": "Rome"}}   paths: {city: user.city}   ──►  +I (7, "Rome")

An array of objects is one insert for each, as in Flink. An event has no time of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

import msgspec

from jobs.core.formats.frame import DecoderFrame
from jobs.core.formats.row_fields import (
    UNNAMEABLE,
    NumberFields,
    RefusedError,
    clip,
    field_path,
    indent,
    rejection,
)
from jobs.core.plan.tree import Column
from jobs.core.values.change import Changes, ColumnGone, Decoded, Value
from jobs.core.values.json_text import describe
from jobs.core.values.json_values import Converter, converter
from schemas.spec.event_formats import PATH_STEP
from schemas.types.sql_types import SqlType

Steps = tuple[str | int, ...]  # the members and elements from an event to a field

_ABSENT = object()


def parse_path(path: str) -> Steps:
    """Return the steps of a path such as `user.phones[0]`."""
    steps = re.findall(PATH_STEP, path.removeprefix("$"))
    return tuple(int(index) if index else name for name, index in steps)


class JsonEventDecoder(DecoderFrame):
    """Decodes plain JSON events for one source."""

    def _make_fields(self) -> EventFields:
        rules = self._rules
        return EventFields(
            self._columns,
            self._used,
            dict(rules.paths),
            partial(converter, timestamp_format=rules.timestamp_format),
            missing_is_null=rules.missing_is_null,
        )

    def _decode_json(self, root: object) -> Decoded:
        events = enumerate(root) if isinstance(root, list) else [(None, root)]
        rows = [
            self._fields.parse_row(event, "$" if index is None else f"$[{index}]")
            for index, event in events
        ]
        return Changes([(1, self._fields.pick(row)) for row in rows])


@dataclass
class _Object:
    """An object of the event: the columns among its members, and the objects in it."""

    columns: dict[str, int] = field(default_factory=dict)  # member to the index of its column
    objects: dict[str, _Object] = field(default_factory=dict)

    def indexes(self) -> Iterator[int]:
        """Yield the columns of this object and of the objects in it."""
        yield from self.columns.values()
        for each in self.objects.values():
            yield from each.indexes()


class EventFields(NumberFields):
    """The columns of an event, each at its path; without a path, the member of its name."""

    def __init__(
        self,
        columns: tuple[Column, ...],
        used: tuple[Column, ...],
        paths: Mapping[str, str],
        convert: Callable[[SqlType], Converter],
        *,
        missing_is_null: bool,
    ) -> None:
        super().__init__(columns, used, convert, missing_is_null=missing_is_null)
        self._steps: tuple[Steps, ...] = tuple(
            parse_path(paths[column.name]) if column.name in paths else (column.name,)
            for column in columns
        )
        root = _make_tree(self._steps)
        self.nameable = root is not None
        self._root = root or _Object()

    # --- the fast path ----------------------------------------------------------------------

    def make_struct(self, name: str, *, partial: bool) -> type[msgspec.Struct]:
        return self._struct(name, self._root)

    def _struct(self, name: str, node: _Object) -> type[msgspec.Struct]:
        members: dict[str, tuple[str, object]] = {
            member: (f"c{index}", self.json_type(index)) for member, index in node.columns.items()
        }
        for number, (member, child) in enumerate(node.objects.items()):
            members[member] = f"o{number}", self._struct(f"{name}{number}", child) | None
        fields: list[tuple[str, object] | tuple[str, object, object]] = [
            (name, kind, None) if self.missing_is_null else (name, kind)
            for name, kind in members.values()
        ]
        renamed = {name: member for member, (name, _) in members.items()}
        return msgspec.defstruct(name, fields, rename=renamed, gc=False, kw_only=True)

    def read_lines(self, row: str, value: str) -> Iterator[str]:
        return self._object_lines(self._root, row, value)

    def _object_lines(self, node: _Object, row: str, value: str) -> Iterator[str]:
        for index in node.columns.values():
            yield from self._field_lines(index, f"{row}.c{index}", f"{value}{index}")
        for number, child in enumerate(node.objects.values()):
            inner = f"{row}_{number}"
            yield f"{inner} = {row}.o{number}"
            yield f"if {inner} is None:"
            for index in child.indexes():
                yield f"    {value}{index} = None"
            yield "else:"
            yield "    pass"
            yield from indent(4, self._object_lines(child, inner, value))

    # --- the exact path ---------------------------------------------------------------------

    def parse_row(self, node: object, path: str) -> list[Value]:
        self._members(node, path)
        return [
            self._parse_field(node, path, index, steps) for index, steps in enumerate(self._steps)
        ]

    def _parse_field(self, node: object, path: str, index: int, steps: Steps) -> Value:
        column = self.columns[index]
        for step in steps:
            if node is None:
                return None
            node, path = _enter(node, step, path)
            if node is _ABSENT:
                if self.missing_is_null:
                    return None
                why = clip(f"{path} is missing in the message")
                raise RefusedError(ColumnGone(column.name, why))
        try:
            return self.converters[index](node)
        except ValueError as error:
            raise RefusedError(rejection(str(error), path)) from None


def _enter(node: object, step: str | int, path: str) -> tuple[object, str]:
    """Return a member or element and its path; raise RefusedError if there can be none."""
    if isinstance(step, str):
        if not isinstance(node, dict):
            raise RefusedError(rejection(f"{describe(node)} where an object belongs", path))
        return node.get(step, _ABSENT), field_path(path, step)
    if not isinstance(node, list):
        raise RefusedError(rejection(f"{describe(node)} where an array belongs", path))
    return node[step] if step < len(node) else _ABSENT, f"{path}[{step}]"


def _make_tree(paths: tuple[Steps, ...]) -> _Object | None:
    """Return the objects that have the paths' columns; None if structs cannot describe them."""
    root = _Object()
    for index, steps in enumerate(paths):
        node = root
        names = [step for step in steps if isinstance(step, str) and not UNNAMEABLE.search(step)]
        if len(names) < len(steps):
            return None
        for name in names[:-1]:
            node = node.objects.setdefault(name, _Object())
        if names[-1] in node.columns:
            return None
        node.columns[names[-1]] = index
    return None if _overlaps(root) else root


def _overlaps(node: _Object) -> bool:
    """Return whether a member is a column and has columns in it as well."""
    return not node.columns.keys().isdisjoint(node.objects) or any(
        map(_overlaps, node.objects.values())
    )
