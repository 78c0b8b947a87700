"""The service as commands ask it: its address, its token, its refusals as sentences.

The service is called by its name, as in jobs.cli.commands.serve: nothing of jobs imports it.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from jobs.cli.errors import CommandFailed, UsageError
from jobs.cli.output import safe

SERVICE_VARIABLE, TOKEN_VARIABLE = "RETALLY_SERVICE", "RETALLY_TOKEN"
SERVICE_DEFAULT = "http://127.0.0.1:8080"


@contextmanager
def service_client(options: argparse.Namespace) -> Iterator[Any]:
    """A client for a while."""
    service = import_module("service.client")
    address = options.service or os.environ.get(SERVICE_VARIABLE) or SERVICE_DEFAULT
    try:
        client = service.Client(address, os.environ.get(TOKEN_VARIABLE))
    except ValueError as error:
        raise UsageError(str(error)) from None
    try:
        yield client
    except service.Refused as error:
        raise CommandFailed(safe(str(error))) from None
    except TimeoutError as error:
        raise CommandFailed(str(error)) from None
    except OSError as error:
        raise CommandFailed(
            f"{address} does not answer: {error}; does retally serve run? "
            "(--service URL names another, --data DIR asks the tables themselves)"
        ) from None
    finally:
        client.close()
