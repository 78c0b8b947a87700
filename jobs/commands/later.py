"""Commands that a later version brings: they say so instead of doing half of it."""

from __future__ import annotations

import argparse

from jobs.commands.errors import UsageError

_WHY = {
    "serve": "the service is not part of this version yet; retally run runs a job in the "
    "foreground",
}


def run(options: argparse.Namespace) -> int:
    raise UsageError(_WHY[options.command])
