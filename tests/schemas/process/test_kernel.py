"""A process knows how much memory it has."""

from __future__ import annotations

import mmap
import sys

import pytest

from schemas.process.kernel import read_process_memory

BYTES = 64 << 20


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
def test_memory_that_is_taken_is_seen() -> None:
    before = read_process_memory()
    # Not from the allocator, which may have as much left of what was there before.
    with mmap.mmap(-1, BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS):
        after = read_process_memory()
    assert before is not None and after is not None
    assert after.address_space - before.address_space >= BYTES
    assert after.data - before.data >= BYTES
    assert 0 < after.data < after.address_space
