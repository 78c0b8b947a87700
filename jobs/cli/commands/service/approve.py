"""retally approve: approves the pending spec of a job, which drops or keeps its state."""

from __future__ import annotations

import argparse

from jobs.cli.output import print_json, print_note
from jobs.cli.service import Service, service_client


def run(options: argparse.Namespace) -> None:
    with service_client(options) as client:
        if options.state == "drop":
            client.begin_anew(options.name)
            done = {"job": options.name, "state": "drop"}
        else:
            done = Service(client, options.name).approve(options.state)
    if options.json:
        print_json(done)
    else:
        print_note(f"{options.name} has the approved spec; start it with retally start")
