"""The daemon that forks Spark's Python workers: pyspark's own, but for one traceback.

A worker that still writes while its JVM ends has nobody to tell; pyspark prints a BrokenPipeError
over whatever the user is reading.
"""

from __future__ import annotations

import os
import socket

from pyspark import daemon

_worker = daemon.worker


def worker(sock: socket.socket, authenticated: bool) -> int:
    try:
        return _worker(sock, authenticated)
    except BrokenPipeError:
        os._exit(0)


if __name__ == "__main__":
    daemon.worker = worker
    daemon.manager()
