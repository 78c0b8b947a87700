"""retally broker: runs the embedded broker in the foreground."""

from __future__ import annotations

import argparse


def run(options: argparse.Namespace) -> int:
    from jobs.edge.machine.data_directory import require_writable
    from jobs.edge.machine.jars import broker_classpath
    from jobs.edge.machine.java import java
    from jobs.edge.process import broker

    java(), broker_classpath()  # or else the command offers to fetch them
    require_writable(options.data)
    return broker.main(options.host, options.port, options.data)
