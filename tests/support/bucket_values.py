"""Values whose buckets are compared between engines."""

from __future__ import annotations

import math

from jobs.core.values.change import Value

BUCKETS = 4_096
VALUES: dict[str, list[Value]] = {
    "STRING": ["a", "", "é\u0000b", None],
    "BOOLEAN": [True, False, None, True],
    "TINYINT": [-128, 127, 0, None],
    "BIGINT": [-(2**63), 2**63 - 1, 0, None],
    "DECIMAL(10, 2)": [150, -5, 0, None],
    "DECIMAL(38, 20)": [10**38 - 1, -1, 0, None],
    "DECIMAL(38, 0)": [-(10**38) + 1, 10, 0, None],
    "FLOAT": [0.10000000149011612, math.nan, -math.inf, 2.0**-149],
    "DOUBLE": [0.1, 5e-324, 0.0, -1.7976931348623157e308],
    "DATE": [18_395, -719_162, 0, None],
    "TIME": ["12:38:35", "00:00:00", None, "23:59:59"],
    "TIMESTAMP(3)": [1_589_373_515_477_000, -1_000, 0, None],
    "TIMESTAMP_LTZ(6)": [1_589_373_515_477_001, -1, 0, None],
    "TIMESTAMP(9)": ["2020-05-13 12:38:35.123456789", None, None, None],
    "BINARY": [b"\x00\xff", b"", b"\x01", None],
}
