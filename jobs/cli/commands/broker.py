"""retally broker: runs the embedded broker in the foreground."""

from __future__ import annotations

import argparse


def run(options: argparse.Namespace) -> int:
    from jobs.edge.process import broker

    return broker.main(options.host, options.port, options.data)
