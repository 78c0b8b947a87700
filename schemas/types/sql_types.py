"""SQL types of columns and results, and the Python value of each type.

Inside retally every value is a bool, int, float, str, bytes or None. So values can be hashed,
compared, packed and sent to other processes without classes of their own:

    BOOLEAN                     bool
    TINYINT .. BIGINT           int
    FLOAT, DOUBLE               float (FLOAT already rounded to 32 bits; one NaN object; no -0.0)
    DECIMAL(p, s)               int, the number of units of 10^-s
    STRING                      str
    DATE                        int, days since 1970-01-01
    TIME                        str, HH:MM:SS, and the fraction without trailing zeros
    TIMESTAMP(p), p <= 6        int, microseconds since 1970-01-01 00:00:00
    TIMESTAMP(p), p >  6        str, YYYY-MM-DD HH:MM:SS.nnnnnnnnn (sorts as the instant does)
    TIMESTAMP_LTZ(p)            the same two, in UTC
    BINARY                      bytes
    ARRAY<T>                    tuple of values of T; only results have it
    ROW<T, ...>                 tuple of values; only multisets have it: a sort key, then a value
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

DECIMAL_PRECISION_MAX = 38
WORD_DIGITS_MAX = 18  # decimal digits that always fit a signed 64-bit word
TIMESTAMP_PRECISION_MAX = 9
TIMESTAMP_PRECISION_DEFAULT = 6
MICROSECOND_PRECISION = 6


class Kind(StrEnum):
    BOOLEAN = "BOOLEAN"
    TINYINT = "TINYINT"
    SMALLINT = "SMALLINT"
    INT = "INT"
    BIGINT = "BIGINT"
    FLOAT = "FLOAT"
    DOUBLE = "DOUBLE"
    DECIMAL = "DECIMAL"
    STRING = "STRING"
    DATE = "DATE"
    TIME = "TIME"
    TIMESTAMP = "TIMESTAMP"
    TIMESTAMP_LTZ = "TIMESTAMP_LTZ"
    BINARY = "BINARY"
    ARRAY = "ARRAY"
    ROW = "ROW"


COMPOSITE = (Kind.ARRAY, Kind.ROW)  # results of aggregates; no column of a source has such a type
INTEGER_BITS = {Kind.TINYINT: 8, Kind.SMALLINT: 16, Kind.INT: 32, Kind.BIGINT: 64}
FLOATING = (Kind.FLOAT, Kind.DOUBLE)
ALIASES = {
    "BYTES": "BINARY",
    # Other names of the standard and of PostgreSQL.
    "NUMERIC": "DECIMAL",
    "BOOL": "BOOLEAN",
    "INT2": "SMALLINT",
    "INT8": "BIGINT",
    "FLOAT8": "DOUBLE",
    "TIMESTAMPTZ": "TIMESTAMP_LTZ",
    **dict.fromkeys(("INTEGER", "INT4"), "INT"),
    **dict.fromkeys(("REAL", "FLOAT4"), "FLOAT"),
    **dict.fromkeys(("VARCHAR", "CHAR", "TEXT"), "STRING"),
}
# MySQL's and DuckDB's unsigned integers, as the type that holds all of their values.
UNSIGNED = {
    **dict.fromkeys(("TINYINT UNSIGNED", "UTINYINT"), "SMALLINT"),
    **dict.fromkeys(("SMALLINT UNSIGNED", "USMALLINT"), "INT"),
    **dict.fromkeys(("MEDIUMINT", "MEDIUMINT UNSIGNED"), "INT"),
    **dict.fromkeys(("INT UNSIGNED", "INTEGER UNSIGNED", "UINTEGER"), "BIGINT"),
    **dict.fromkeys(("BIGINT UNSIGNED", "UBIGINT"), "DECIMAL(20, 0)"),
}
_TYPE = re.compile(r"\s*([A-Za-z_]+[248]?)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?\s*")


@dataclass(frozen=True, slots=True)
class SqlType:
    """A SQL type; `precision`, `scale` and `items` are set only if the kind has them."""

    kind: Kind
    precision: int | None = None
    scale: int | None = None
    items: tuple[SqlType, ...] = ()  # an ARRAY has one item, the type of its elements

    @classmethod
    def read(cls, text: str) -> SqlType:
        """Return the type of a text that `str` wrote, also ARRAY and ROW."""
        name, opened, rest = text.partition("<")
        if not opened:
            return cls.parse(text)
        items, depth = [""], 0
        for character in rest.removesuffix(">"):
            depth += (character in "<(") - (character in ">)")
            if character == "," and not depth:
                items.append("")
            else:
                items[-1] += character
        return cls(Kind(name), items=tuple(cls.read(item.strip()) for item in items))

    @classmethod
    def parse(cls, text: str) -> SqlType:
        """Return the type of a user's text; raise ValueError with the reason if it is none."""
        match = _TYPE.fullmatch(UNSIGNED.get(" ".join(text.upper().split()), text))
        if match is None:
            raise ValueError(f"{text!r} is not a type such as INT or DECIMAL(10, 2)")
        word = match[1].upper()
        name = ALIASES.get(word, word)
        if name not in Kind.__members__ or name in COMPOSITE:
            known = ", ".join(kind for kind in Kind if kind not in COMPOSITE)
            raise ValueError(f"unknown type {match[1]!r}; use one of {known}")
        kind = Kind(name)
        first = int(match[2]) if match[2] else None
        second = int(match[3]) if match[3] else None
        if word == "NUMERIC" and first is None:
            raise ValueError("NUMERIC has any digits elsewhere; write NUMERIC(p, s)")
        if kind is Kind.DECIMAL:
            return cls._decimal(10 if first is None else first, second or 0)
        if second is not None:
            raise ValueError(f"{kind} has no two parameters; remove the second")
        if kind in (Kind.TIMESTAMP, Kind.TIMESTAMP_LTZ):
            precision = TIMESTAMP_PRECISION_DEFAULT if first is None else first
            if precision > TIMESTAMP_PRECISION_MAX:
                raise ValueError(f"{kind} has at most {TIMESTAMP_PRECISION_MAX} fraction digits")
            return cls(kind, precision)
        if first is not None and word not in ("VARCHAR", "CHAR", "TIME"):
            raise ValueError(f"{kind} has no parameter; remove ({first})")
        return cls(kind)

    @classmethod
    def _decimal(cls, precision: int, scale: int) -> SqlType:
        if not 1 <= precision <= DECIMAL_PRECISION_MAX or scale > precision:
            raise ValueError(
                f"DECIMAL({precision}, {scale}) is not possible; use a precision from 1 to "
                f"{DECIMAL_PRECISION_MAX} and a scale up to the precision"
            )
        return cls(Kind.DECIMAL, precision, scale)

    @property
    def integer(self) -> bool:
        return self.kind in INTEGER_BITS

    @property
    def floating(self) -> bool:
        return self.kind in FLOATING

    @property
    def numeric(self) -> bool:
        return self.integer or self.floating or self.kind is Kind.DECIMAL

    @property
    def item_names(self) -> tuple[str, ...]:
        """The names of a ROW's fields in tables."""
        return tuple(f"f{number}" for number in range(1, len(self.items) + 1))

    @property
    def textual_time(self) -> bool:
        """Whether values are sortable text, because no type of Spark and Delta holds them."""
        if self.kind is Kind.TIME:
            return True
        stamp = self.kind in (Kind.TIMESTAMP, Kind.TIMESTAMP_LTZ)
        return stamp and (self.precision or 0) > MICROSECOND_PRECISION

    def __str__(self) -> str:
        if self.kind is Kind.DECIMAL:
            return f"DECIMAL({self.precision}, {self.scale})"
        if self.kind in (Kind.TIMESTAMP, Kind.TIMESTAMP_LTZ):
            return f"{self.kind}({self.precision})"
        if self.items:
            return f"{self.kind}<{', '.join(map(str, self.items))}>"
        return str(self.kind)


BOOLEAN = SqlType(Kind.BOOLEAN)
TINYINT = SqlType(Kind.TINYINT)
SMALLINT = SqlType(Kind.SMALLINT)
INT = SqlType(Kind.INT)
BIGINT = SqlType(Kind.BIGINT)
FLOAT = SqlType(Kind.FLOAT)
DOUBLE = SqlType(Kind.DOUBLE)
STRING = SqlType(Kind.STRING)
DATE = SqlType(Kind.DATE)
TIME = SqlType(Kind.TIME)
BINARY = SqlType(Kind.BINARY)


def decimal(precision: int, scale: int) -> SqlType:
    return SqlType(Kind.DECIMAL, precision, scale)


def timestamp(precision: int, *, local_zone: bool = False) -> SqlType:
    return SqlType(Kind.TIMESTAMP_LTZ if local_zone else Kind.TIMESTAMP, precision)


def array_of(element: SqlType) -> SqlType:
    return SqlType(Kind.ARRAY, items=(element,))


def row_of(*items: SqlType) -> SqlType:
    return SqlType(Kind.ROW, items=items)


def integer_range(sql_type: SqlType) -> tuple[int, int]:
    """Return the smallest and the largest value of an integer type."""
    bits = INTEGER_BITS[sql_type.kind]
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
