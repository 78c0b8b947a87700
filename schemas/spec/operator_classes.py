"""Classes of the operator that a spec names; the operator must have allowed each of them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from schemas import limits
from schemas.spec.values import ColumnType, Section, text_like

ClassPath = Annotated[
    str,
    text_like(
        "a class",
        r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*",
        "write it like package.module:ClassName",
    ),
]
FunctionName = Annotated[
    str,
    text_like(
        "a function name",
        rf"[A-Z_][A-Z0-9_]{{0,{limits.IDENTIFIER_CHARACTERS_MAX - 1}}}",
        "write it in capitals, like GEO_MEAN",
    ),
]


class GeneratorClass(Section):
    """A generator of watermarks."""

    path: ClassPath = Field(alias="class", max_length=limits.PATTERN_CHARACTERS_MAX)


class AggregateClass(Section):
    """An aggregate, which queries call by the name that the spec gives it."""

    path: ClassPath = Field(alias="class", max_length=limits.PATTERN_CHARACTERS_MAX)
    returns: ColumnType
    # Its first argument is the time of a row, and its timers fire, at a watermark or in
    # processing time.
    timers: bool | Literal["processing"] = False
