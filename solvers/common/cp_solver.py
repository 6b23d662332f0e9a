"""OR-Tools' CP-SAT, set up so that it gives the same answer every time."""

from __future__ import annotations

from typing import Any

__all__ = ["repeatable_solver"]


def repeatable_solver(seconds: float, seed: int = 0) -> Any:
    """A solver that ends after this many seconds. It has one worker and a fixed seed: several workers race each other, and answers differ."""
    from ortools.sat.python import cp_model  # takes a second to import

    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = seed
    solver.parameters.max_time_in_seconds = seconds
    return solver
