"""Functions that other engines have and retally refuses, each with the reason.

A name that is neither here nor known is perhaps misspelt; only then does its spelling give a hint.
"""

from __future__ import annotations

from typing import NamedTuple


class Refused(NamedTuple):
    reason: str
    instead: str | None = None


_SKETCH = "a sketch cannot remove a retracted value"
_LAST_DIGIT = "its last digit may differ between machines, so a retraction could miss its row"
_REGEXP = Refused(
    "a regular expression may take unlimited time on one row",
    "LIKE, REPLACE, SPLIT_INDEX or TRANSLATE",
)
_NO_PARTS = Refused(
    "a value has no parts, except in COUNT(DISTINCT ROW(a, b))", "each part as a column"
)


def _by_name(table: dict[str, Refused]) -> dict[str, Refused]:
    return {name: refused for names, refused in table.items() for name in names.split()}


AGGREGATES = _by_name(
    {
        "APPROX_COUNT_DISTINCT APPROX_DISTINCT HLL": Refused(_SKETCH, "COUNT(DISTINCT x)"),
        "APPROX_PERCENTILE APPROX_QUANTILE RESERVOIR_QUANTILE": Refused(
            _SKETCH, "PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY x)"
        ),
        "APPROX_TOP_K APPROX_MOST_FREQUENT": Refused(_SKETCH, "COUNT(*) with GROUP BY x"),
        "GROUP_CONCAT": Refused(
            "its separator has a syntax of its own", "STRING_AGG(x, ', ' ORDER BY x)"
        ),
        "COLLECT": Refused("there is no MULTISET", "ARRAY_AGG(x)"),
        "MAP_AGG": Refused("there is no MAP", "JSON_OBJECTAGG(KEY k VALUE v)"),
        "PRODUCT": Refused("a zero cannot be divided out of a product again"),
        "FSUM KAHAN_SUM SUMKAHAN": Refused("sums of floats are exact, and rounded once", "SUM(x)"),
        "FAVG MEAN": Refused(
            "AVG of whole numbers is rounded toward zero", "AVG(CAST(x AS DOUBLE))"
        ),
        "WEIGHTED_AVG": Refused("write it out", "SUM(x * w) / SUM(w)"),
        "GEOMEAN GEOMETRIC_MEAN ENTROPY": Refused(_LAST_DIGIT),
        "SEM": Refused("write it out", "STDDEV_POP(x) / SQRT(COUNT(x))"),
        "MAD": Refused("each change of the median changes all distances to it"),
        "BITSTRING_AGG": Refused("there are no strings of bits"),
        "GROUP_ID": Refused("it is the column group_id of the key, if grouping sets are equal"),
    }
)

FUNCTIONS = _by_name(
    {
        "SIN COS TAN ASIN ACOS ATAN ATAN2 SINH COSH TANH COT": Refused(_LAST_DIGIT),
        "REGEXP REGEXP_EXTRACT REGEXP_REPLACE REGEXP_LIKE REGEXP_COUNT RLIKE SIMILAR_TO": _REGEXP,
        "I_LIKE ILIKE": Refused("compare in one case", "LOWER(s) LIKE 'a%'"),
        "INITCAP": Refused("engines disagree about where a word starts"),
        "DATE_ADD": Refused("write the interval", "d + INTERVAL '1' DAY"),
        "DATEDIFF DATE_DIFF": Refused("write TIMESTAMPDIFF", "TIMESTAMPDIFF(DAY, t, u)"),
        "DATE_PART": Refused("write EXTRACT", "EXTRACT(HOUR FROM t)"),
        "STRFTIME TO_CHAR": Refused("write DATE_FORMAT", "DATE_FORMAT(t, 'yyyy-MM-dd')"),
        "STRPOS INSTR": Refused("write POSITION", "POSITION('x' IN s)"),
        "SPLIT_PART": Refused("write SPLIT_INDEX, which counts from 0", "SPLIT_INDEX(s, ',', 0)"),
        "IIF": Refused("write IF", "IF(c, x, y)"),
        "ROW STRUCT MAP ARRAY STRUCT_PACK": _NO_PARTS,
    }
)
