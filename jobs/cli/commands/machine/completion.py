"""retally completion: prints a completion script for a shell.

bash   eval "$(retally completion bash)"                          in ~/.bashrc
zsh    retally completion zsh > ~/.zfunc/_retally                 with ~/.zfunc in fpath
"""

from __future__ import annotations

import argparse

import shtab

from jobs.cli import main as command


def run(options: argparse.Namespace) -> None:
    print(shtab.complete(command.build_parser(), options.shell))
