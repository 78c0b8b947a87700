"""retally completion: what a shell needs to complete this command's names and options.

bash   eval "$(retally completion bash)"                          in ~/.bashrc
zsh    retally completion zsh > ~/.zfunc/_retally                 where fpath has ~/.zfunc
"""

from __future__ import annotations

import argparse

import shtab

from jobs.cli import main as command


def run(options: argparse.Namespace) -> None:
    print(shtab.complete(command.parser(), options.shell))
