"""No compiled function without a test of its own."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from pathlib import Path
from types import ModuleType

import solvers


def every_compiled_function() -> dict[str, object]:
    """Whatever numba compiles in solvers/, by where it is defined."""
    found: dict[str, object] = {}
    for info in pkgutil.walk_packages(solvers.__path__, "solvers."):
        for name, value in vars(importlib.import_module(info.name)).items():
            plain = getattr(value, "py_func", None)
            if plain is not None and plain.__module__ == info.name:
                found[f"{info.name}.{name}"] = value
    return found


def is_named(test: str, function: str) -> bool:
    return test.startswith(f"test_{function}_") or f"_and_{function}_" in test


def test_every_compiled_function_is_imported_and_named_by_a_test() -> None:
    functions = every_compiled_function()
    assert len(functions) > 40
    tests: list[ModuleType] = [importlib.import_module(f"{__package__}.{path.stem}") for path in Path(__file__).parent.glob("test_*.py")]
    for name, function in functions.items():
        plain = name.rpartition(".")[2].lstrip("_")
        homes = [module for module in tests if any(value is function for value in vars(module).values())]
        assert any(is_named(test, plain) for module in homes for test in vars(module)), f"no test of {name} among {[m.__name__ for m in homes]}"


SCALARS = re.compile(r"(None|bool|int|float|tuple|[\[\], .])*")


def test_functions_that_count_no_references_are_given_arrays_and_hand_none_on() -> None:
    """Arrays that such a function makes or gets from another one would never be given back."""
    functions = list(every_compiled_function().values())
    uncounted = [function for function in functions if function.targetoptions["_nrt"] is False]  # type: ignore[attr-defined]
    assert 40 < len(uncounted) < len(functions)
    for function in uncounted:
        plain = function.py_func  # type: ignore[attr-defined]
        called = (value for name, value in vars(inspect.getmodule(plain)).items() if name in plain.__code__.co_names)
        for other in (plain, *(value.py_func for value in called if hasattr(value, "py_func"))):
            assert SCALARS.fullmatch(other.__annotations__["return"]), f"{plain.__name__}: {other.__name__} returns {other.__annotations__['return']}"
