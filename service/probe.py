"""Probe: check that an address answers 200, for health checks in images without curl.

python -m service.probe http://127.0.0.1:8080/readyz

It uses only the standard library and no proxy, because it checks this machine and must be cheap.
"""

from __future__ import annotations

import sys
from http.client import HTTPConnection, HTTPException
from urllib.parse import urlsplit

SECONDS_MAX = 4.0


def main(address: str) -> int:
    """Return 0 if the address answers 200, otherwise 1; print the reason."""
    parts = urlsplit(address)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=SECONDS_MAX)
    try:
        connection.request("GET", parts.path or "/")
        response = connection.getresponse()
    except (OSError, HTTPException) as error:
        print(f"{address}: {error}", file=sys.stderr)
        return 1
    finally:
        connection.close()
    if response.status != 200:
        print(f"{address}: {response.status}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m service.probe http://HOST:PORT/PATH")
    sys.exit(main(sys.argv[1]))
