"""The snapshot of a source: the rows that its table has at the first start of a job.

    snapshot: {jdbc: {connection: shop, table: orders, key: id}}    | {delta: PATH}
            | {parquet: PATH} | {csv: PATH}

The job folds these rows first, then the topic; with `dedupe: pk` this is exact for any overlap.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from schemas import limits
from schemas.spec.values import ColumnName, ConnectionName, Count, Section, text_like

FileFormat = Literal["delta", "parquet", "csv"]
_TABLE = text_like(
    "the name of a table",
    r"[A-Za-z_][A-Za-z0-9_$]{0,127}(\.[A-Za-z_][A-Za-z0-9_$]{0,127}){0,2}",
    "write it like orders or shop.orders; give a query the name of a view in the database",
)


_GLOB = "{}[]*?\\"  # with which Spark finds other paths


def _check_path(text: str) -> str:
    if not 0 < len(text) <= limits.PATH_CHARACTERS_MAX or not text.isprintable():
        raise ValueError(f"must be a path of at most {limits.PATH_CHARACTERS_MAX} characters")
    if ".." in text.split("/") or any(each in text for each in _GLOB):
        raise ValueError(f"must not contain '..' or any of {_GLOB}; write the path that is meant")
    return text


_Path = Annotated[str, AfterValidator(_check_path)]


class JdbcTable(Section):
    """A table of a database, which is read in ranges of a column of whole numbers or text."""

    connection: ConnectionName
    table: Annotated[str, _TABLE]
    key: ColumnName
    parts: Annotated[Count, Field(le=limits.SNAPSHOT_PARTS_MAX)] | None = None


class Snapshot(Section):
    jdbc: JdbcTable | None = None
    delta: _Path | None = None
    parquet: _Path | None = None
    csv: _Path | None = Field(default=None, validate_default=True)

    @field_validator("csv")
    @classmethod
    def _one_place(cls, csv: str | None, info: ValidationInfo) -> str | None:
        others = [info.data.get(key, "wrong") for key in ("jdbc", "delta", "parquet")]
        if sum(each is not None for each in (*others, csv)) != 1:
            raise ValueError("give exactly one of jdbc, delta, parquet and csv")
        return csv

    @property
    def place(self) -> str:
        """What the rows of a plan are found by; its parts mean nothing anywhere else."""
        if self.jdbc is not None:
            return f"{self.jdbc.connection}: {self.jdbc.table} by {self.jdbc.key}"
        return " ".join(self.files or ())

    @property
    def files(self) -> tuple[FileFormat, str] | None:
        """The format and the place of the files; None for a table of a database."""
        named: dict[FileFormat, str | None]
        named = {"delta": self.delta, "parquet": self.parquet, "csv": self.csv}
        return next(((kind, path) for kind, path in named.items() if path is not None), None)
