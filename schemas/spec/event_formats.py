"""The sections `json` and `csv` of a source: where the columns are in a plain event."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from schemas import limits
from schemas.spec.values import ColumnName, MisplacedError, Section, text_like

# One step of a path: a member's name, or the index of an element.
PATH_STEP = r"""\.?([^\s.\[\]$'"]+)|\[(\d{1,9})\]"""
_PATH = r"""(?:\$\.)?NAME(?:\.NAME|\[\d{1,9}\])*""".replace("NAME", r"""[^\s.\[\]$'"]+""")

JsonPath = Annotated[
    str,
    text_like("a path", _PATH, "write it like user.address.city, or items[0].price"),
    Field(max_length=limits.PATTERN_CHARACTERS_MAX),
]
Mark = Annotated[str, Field(max_length=1)]
FieldName = Annotated[str, Field(min_length=1, max_length=limits.IDENTIFIER_CHARACTERS_MAX)]


class JsonEvents(Section):
    """How the columns are found in a message of `format: json`."""

    paths: dict[ColumnName, JsonPath] = Field(default_factory=dict)
    ignore_null_fields: bool = True  # the writer omits fields that are NULL


class CsvEvents(Section):
    """How a message of `format: csv` is written."""

    fields: tuple[FieldName, ...] | None = Field(default=None, strict=False)
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] = ","
    quote: Mark = '"'
    escape: Mark = ""
    null_literal: str | None = Field(default=None, max_length=limits.IDENTIFIER_CHARACTERS_MAX)

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        marks = [mark for mark in (self.delimiter, self.quote, self.escape) if mark]
        if len(set(marks)) < len(marks):
            raise ValueError("delimiter, quote and escape must be different characters")
        if set(marks) & {"\n", "\r"}:
            raise ValueError("a line end cannot be delimiter, quote or escape")
        for index, name in enumerate(self.fields or ()):
            if name in (self.fields or ())[:index]:
                raise MisplacedError(f"{name!r} is named twice; keep one", "fields", str(index))
        return self
