"""Processor time of a tree of processes is counted once, also that of processes that have ended."""

from __future__ import annotations

import subprocess

from bench.process_tree import cpu_ticks, cpu_ticks_with_ended, descendants

BUSY = "import time\nwhile time.process_time() < 0.5: pass"


def test_the_time_of_an_ended_child_is_that_of_its_parent() -> None:
    shell = subprocess.Popen(
        ["sh", "-c", f"python3 -c '{BUSY}'; echo done; read line"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert shell.stdin is not None
    assert shell.stdout is not None
    try:
        assert shell.stdout.readline() == "done\n"
        assert descendants(shell.pid) == [shell.pid]
        assert cpu_ticks(shell.pid) < 20
        assert cpu_ticks_with_ended(shell.pid) >= 45
    finally:
        shell.stdin.close()
        shell.wait()
        shell.stdout.close()
