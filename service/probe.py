"""Probe: whether something answers 200, for health checks in images that have no curl.

python -m service.probe http://127.0.0.1:8080/readyz

Only the standard library and no proxy: a probe is of this very machine, and costs little.
"""

from __future__ import annotations

import sys
from http.client import HTTPConnection, HTTPException
from urllib.parse import urlsplit

SECONDS_MAX = 4.0


def main(address: str) -> int:
    """0 where it answers 200, else 1 and why."""
    place = urlsplit(address)
    connection = HTTPConnection(place.hostname or "", place.port, timeout=SECONDS_MAX)
    try:
        connection.request("GET", place.path or "/")
        answer = connection.getresponse()
    except (OSError, HTTPException) as error:
        print(f"{address}: {error}", file=sys.stderr)
        return 1
    finally:
        connection.close()
    if answer.status != 200:
        print(f"{address}: {answer.status}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m service.probe http://HOST:PORT/PATH")
    sys.exit(main(sys.argv[1]))
