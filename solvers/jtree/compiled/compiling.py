"""numba's njit with a cache on disk, wherever the package is installed.

Compiling takes a minute, loading what was compiled a second. numba keeps it beside the source or in the home folder, and raises where it may
write to neither, as for a system user in a container. Then it is kept in a folder of ours for temporary files; what lies there is executed, so
only if the folder is this user's own and nobody else may write to it. Where there is no such folder either, every process compiles for itself.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

__all__ = ["Flags", "Floats", "Ints", "compiled", "inlined", "making", "njit", "released"]

F = TypeVar("F", bound=Callable[..., object])
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


def njit(function: F, **options: Any) -> F:
    """The function, compiled when it is first called, or loaded where it was compiled before."""
    try:
        return cast(F, numba.njit(cache=True, **options)(function))
    except RuntimeError:  # no place for the cache
        folder = _own_folder()
        if folder is None:
            return cast(F, numba.njit(**options)(function))
        numba.config.CACHE_DIR = str(folder)
        return cast(F, numba.njit(cache=True, **options)(function))


def compiled(function: F) -> F:
    """Compiled, and cached on disk, for a function that is given all arrays it works on: it makes none and returns none.

    So numba need not count references to them, which took two thirds of the time of searches whose tables are tuples of dozens of arrays.
    A function that makes an array all the same is not compiled. An array from a `making` function would never be given back: a test forbids that.
    No fast-math: the same comparisons on every machine; dividing by zero is no error.
    """
    return njit(function, error_model="numpy", _nrt=False)


def released(function: F) -> F:
    """The same for long loops: other threads run meanwhile, so that one of them can say stop."""
    return njit(function, nogil=True, error_model="numpy", _nrt=False)


def inlined(function: F) -> F:
    """The same for a part of a long loop: LLVM puts it in the place of each call, which would pass every array of its arguments."""
    return njit(function, nogil=True, error_model="numpy", _nrt=False, forceinline=True)


def making(function: F) -> F:
    """The same as `released` for functions that make arrays: references are counted."""
    return njit(function, nogil=True, error_model="numpy", _nrt=True)


@cache
def _own_folder() -> Path | None:
    """A folder that this user alone may write to; None where there is none."""
    try:
        folder = Path(tempfile.gettempdir()) / f"watersmeet-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
            return None
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        return None
