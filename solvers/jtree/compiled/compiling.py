"""numba's njit with a cache on disk, wherever the package is installed.

Compiling takes a minute, loading what was compiled a second. numba keeps it beside the source or in the home folder, and raises where it may
write to neither, as for a system user in a container. Then it is kept in a folder of ours for temporary files; what lies there is executed, so
only if the folder is this user's own and nobody else may write to it. Where there is no such folder either, every process compiles for itself.

Compiled code holds the code of the functions it calls and the values of the constants it names. numba by itself compiles a function again only when
the function's own file has changed. Here it does so when that file has changed, or a file of this room that it imports, or one that those import
in turn, or the tolerances. A test holds compiled functions to using nothing from elsewhere.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba.core.caching import InTreeCacheLocator, UserProvidedCacheLocator, UserWideCacheLocator
from numpy.typing import NDArray

__all__ = ["Flags", "Floats", "Ints", "compiled", "inlined", "making", "njit", "released"]

F = TypeVar("F", bound=Callable[..., object])
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

TOLERANCES = "solvers.common.tolerances"
"""The one module outside this room whose constants compiled functions use."""
IMPORT = re.compile(rb"^from ([\w.]+) import ", re.MULTILINE)


class _Stamped:
    """Says to numba what a cached function was compiled from: it is compiled again where that has changed."""

    def __init__(self, function: Callable[..., object], file: str) -> None:
        super().__init__(function, file)  # type: ignore[call-arg]
        self._module = function.__module__

    def get_source_stamp(self) -> bytes:
        return _stamp(self._module)


class Provided(_Stamped, UserProvidedCacheLocator):  # type: ignore[misc]
    """In the folder that NUMBA_CACHE_DIR names, or ours."""


class Beside(_Stamped, InTreeCacheLocator):  # type: ignore[misc]
    """Beside the source."""


class AtHome(_Stamped, UserWideCacheLocator):  # type: ignore[misc]
    """In the user's home."""


LOCATORS = ",".join(f"{__name__}.{place.__name__}" for place in (Provided, Beside, AtHome))


def njit(function: F, **options: Any) -> F:
    """The function, compiled when it is first called, or loaded where it was compiled before."""
    numbas_own, numba.config.CACHE_LOCATOR_CLASSES = numba.config.CACHE_LOCATOR_CLASSES, LOCATORS
    try:
        return cast(F, numba.njit(cache=True, **options)(function))
    except RuntimeError:  # no place for the cache
        folder = _own_folder()
        if folder is None:
            return cast(F, numba.njit(**options)(function))
        numba.config.CACHE_DIR = str(folder)
        return cast(F, numba.njit(cache=True, **options)(function))
    finally:
        numba.config.CACHE_LOCATOR_CLASSES = numbas_own


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
def _stamp(module: str) -> bytes:
    """A digest of this module's file, of those it imports from its own package, of those that they import from there, and of the tolerances."""
    package = module.rpartition(".")[0]
    found: dict[str, bytes] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name], imported = _read(name)
            waiting += [other for other in imported if other == TOLERANCES or other.rpartition(".")[0] == package]
    digest = hashlib.sha256()
    for name in sorted(found):
        digest.update(found[name])
    return digest.digest()


@cache
def _read(module: str) -> tuple[bytes, tuple[str, ...]]:
    """The digest of a module's file, and the modules that it imports."""
    text = Path(str(sys.modules[module].__file__)).read_bytes()
    return hashlib.sha256(text).digest(), tuple(name.decode() for name in IMPORT.findall(text))


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
