"""Compile functions over arrays with numba, where numba is installed.

    @kernel
    def add_up(values: Array) -> int: ...     compiled at its first call, or loaded from the cache

Other parts of the product set numba's environment before this module is imported: the directory
of the cache, or one of numba's other ways to run the same source, for tests (with a check of every
index, or not compiled at all). Without numba, or with a cache that cannot be written, AVAILABLE is
False, and callers take their general path.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np

Array = np.ndarray[Any, Any]
F = TypeVar("F", bound=Callable[..., Any])


def _compiler() -> Callable[..., Any] | None:
    try:
        from numba import njit

        njit(cache=True)(_compiler)  # raises if the cache cannot be written
    except (ImportError, RuntimeError):
        return None
    return cast(Callable[..., Any], njit)


_njit = _compiler()
AVAILABLE = _njit is not None


def kernel(function: F) -> F:
    """Return the compiled function."""
    return function if _njit is None else cast(F, _njit(function, cache=True, nogil=True))


def inlined(function: F) -> F:
    """Return a function for kernels, which becomes a part of each kernel that calls it.

    It must not make an array: it does not count references to arrays, which would cost more than
    most of these functions do."""
    if _njit is None:
        return function
    return cast(F, _njit(function, cache=True, nogil=True, forceinline=True, _nrt=False))


def keep_apart(function: F) -> F:
    """Return such a function, which kernels call: large ones would make them slow to compile."""
    if _njit is None:
        return function
    return cast(F, _njit(function, cache=True, nogil=True, _nrt=False))
