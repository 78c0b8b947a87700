"""End a child process together with its parent, even if the parent is killed."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None  # not after a fork


def end_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent dies; the child calls this first.

    `parent` is the pid of the parent. On Linux only, and the parent's thread counts that started
    the child: the kernel kills the child when this thread ends.
    """
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the line above
            os._exit(1)
