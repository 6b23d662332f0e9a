"""No user waits for a compiler: after `warm`, no search compiles anything more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CODE = """
import random, sys
from solvers.jtree.warm import warm

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
from solvers.frontier import frontier
from solvers.planner import plan
from tests.graphs import random_graph

THETA = ((5, "random"), (9, "clique"), (12, "star"), (13, "clique"), (16, "chain"), (50, "random"))
for n, shape, theta in (*((n, shape, 0.2) for n, shape in THETA), (5, "chain", 0.0), (9, "star", 0.0)):
    query = random_graph(random.Random(n), n, shape, log_selectivity=(-2, -1), theta=theta, rows=0.2)
    if n < 10:
        frontier(PlanRequest(query=query))
    for method in Method:
        if method is Method.CP_SAT or (n > 16 and method is Method.MJOIN):
            continue
        for objective in Objective:
            options = Options(method=method, time_limit=0.1)
            plan(PlanRequest(query=query, resources=Resources(cpu=1, memory_bytes=1e6), objective=objective, options=options))
after = compiled()
assert {name: count for name, count in after.items() if count > before.get(name, 0)} == {}
"""


IMPORTS = """
import sys
from app.service.worker import load

load()
import json
from app.service.endpoints import ENDPOINTS
from app.service.worker import respond
from tests.app.mutation import BY_NAME, bodies
from models.request import Method

before = set(sys.modules)
for name, body in bodies("star", "star").items():
    for method in Method if name in ("plan", "jtree") else (None,):
        for cap in ({}, {"cpu": 1e-6, "memory_bytes": 1e3}) if name in ("plan", "frontier", "jtree") else (None,):
            asked = {**body, "resources": cap} if cap is not None else dict(body)
            if method is not None:
                asked.update({"options": {"method": method}} if name == "plan" else {"method": method})
            assert respond(BY_NAME[name], BY_NAME[name].load(), json.dumps(asked).encode(), 5.0, lambda *_: None).status == 200, name
for endpoint in ENDPOINTS:
    if (so_far := endpoint.load_so_far()) is not None:
        so_far(endpoint.request.model_validate(bodies("star", "star")[endpoint.operation_id]))
ours = ("solvers", "models", "ortools", "pulp", "numba", "numpy", "networkx")
new = sorted(name for name in set(sys.modules) - before if name.split(".")[0] in ours)
assert not new, new
"""


def test_a_worker_that_is_ready_imports_nothing_more() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTS], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


COLLECTOR = """
import gc
from solvers.jtree.warm import load_libraries

load_libraries()
left, stays = len(gc.get_objects()), gc.get_freeze_count()
assert left < stays / 20, (left, stays)
"""


def test_the_collector_looks_past_the_libraries_once_they_are_loaded() -> None:
    """Looking through them takes a tenth of a second, in the middle of the first answer."""
    done = subprocess.run([sys.executable, "-c", COLLECTOR], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_after_warming_up_no_search_compiles_anything() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
