"""Sources: choose where a command about one job gets its answers.

--data DIR                ──► jobs.cli.directory: the job's tables, read by this process
--service URL, or neither ──► jobs.cli.service: a running service, over HTTP
                                  │ the same answers
                                  ▼
                              jobs.cli.commands print them
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobs.cli.directory import Directory
    from jobs.cli.service import Service


@contextmanager
def open_source(options: argparse.Namespace) -> Iterator[Directory | Service]:
    """Yield the source for `options.job`: its tables with --data, else the service."""
    if options.takes_view and not options.view:
        options.job, _, options.view = options.job.partition(".")
    if options.data is not None:
        from jobs.cli.directory import Directory

        yield Directory(options)
        return
    from jobs.cli.service import Service, service_client

    with service_client(options) as client:
        job = f"{options.job}.{options.view}" if options.view else options.job
        yield Service(client, job)
