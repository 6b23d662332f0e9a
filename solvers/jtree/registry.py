"""The function of every search that `models.method` lists: `solvers/jtree/NAME.py` has a function `NAME`."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from models.method import Method
from solvers.common.deadline import Deadline
from solvers.jtree.search import Found, Problem, Search

__all__ = ["module_of", "run"]


def module_of(method: Method) -> str:
    """The module that a method's search is in."""
    return f"solvers.jtree.{method.value}"


def run(method: Method, problem: Problem, deadline: Deadline) -> Found:
    """What the method finds. Its module is imported when it is first run: the command line must start fast."""
    search = cast(Search, getattr(import_module(module_of(method)), method.value))
    if problem.model.graph.tables:
        from solvers.jtree.tables.methods import with_tables

        search = with_tables(method, search)
    return search(problem, deadline)
