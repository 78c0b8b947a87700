"""retally broker, setup and completion: what concerns this machine and not a job."""

from __future__ import annotations

import argparse
import time


def broker(options: argparse.Namespace) -> int:
    """Run the embedded broker in the foreground."""
    from jobs.edge.machine.data_directory import require_writable
    from jobs.edge.machine.jars import broker_classpath
    from jobs.edge.machine.java import java
    from jobs.edge.process import broker

    java(), broker_classpath()  # or else the command offers to fetch them
    require_writable(options.data)
    return broker.main(options.host, options.port, options.data)


def setup(options: argparse.Namespace) -> None:
    """Fetch jars, and Java if there is none, into the user's cache."""
    from jobs.cli.errors import CommandFailed
    from jobs.edge.machine.jars import directory
    from jobs.setup.steps import Environment, SetupFailed, is_set_up, report, set_up

    environment = Environment.of_this_process(runtime=options.runtime)
    if is_set_up(environment):
        report(f"everything is in place in {directory().parent}")
        return
    began = time.monotonic()
    try:
        set_up(environment)
    except SetupFailed as problem:
        raise CommandFailed(str(problem)) from None
    report(f"done in {time.monotonic() - began:.0f} s, in {directory().parent}")


def completion(options: argparse.Namespace) -> None:
    """Print a completion script for a shell.

    bash   eval "$(retally completion bash)"                          in ~/.bashrc
    zsh    retally completion zsh > ~/.zfunc/_retally                 with ~/.zfunc in fpath
    fish   retally completion fish > ~/.config/fish/completions/retally.fish
    """
    import shtab

    from jobs.cli.main import build_parser

    print(shtab.complete(build_parser(), options.shell))
