"""Which start of the machine this is: what was not synced may be lost before the next one."""

from __future__ import annotations

from pathlib import Path

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
