"""No user waits for a compiler: after `warm`, no search compiles anything more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CODE = """
import random, sys
from solvers.warm import warm

def compiled():
    found = {}
    for name, module in sorted(sys.modules.items()):
        if name.startswith("solvers"):
            for value in vars(module).values():
                if hasattr(value, "signatures") and hasattr(value, "py_func"):
                    found[value.__module__ + "." + value.__name__] = len(value.signatures)
    return found

warm()
before = compiled()
assert sum(before.values()) > 5, before

from models.request import Method, Objective, Options, PlanRequest, Resources
from solvers.planner import plan
from tests.graphs import random_graph

for n, shape in ((5, "random"), (9, "clique"), (12, "star"), (13, "clique"), (16, "chain"), (50, "random")):
    query = random_graph(random.Random(n), n, shape, log_selectivity=(-2, -1), theta=0.2, rows=0.2)
    for method in Method:
        if method is Method.CP_SAT or (n > 16 and method is Method.MJOIN):
            continue
        for objective in Objective:
            options = Options(method=method, time_limit=0.2)
            plan(PlanRequest(query=query, resources=Resources(cpu=1, memory_bytes=1e6), objective=objective, options=options))
after = compiled()
assert {name: count for name, count in after.items() if count > before.get(name, 0)} == {}
"""


def test_after_warming_up_no_search_compiles_anything() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
