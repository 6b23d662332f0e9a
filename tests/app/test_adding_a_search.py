"""To add a search takes one file and one entry: everything that lists searches, or asks what they can do, reads the entry."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.app.serving import ROOT

SEARCH = '''
"""A greedy tree, and one join of all streams."""

from solvers.common.deadline import Deadline
from solvers.jtree.claims import heuristic
from solvers.jtree.greedy_tree import greedy_plan
from solvers.jtree.mjoin import mjoin
from solvers.jtree.search import Found, Problem
from solvers.model.point import point_of


def two_plans(problem: Problem, deadline: Deadline) -> Found:
    points = (point_of(problem.model, greedy_plan(problem.model)), mjoin(problem, deadline).best)
    return heuristic(problem, points, "two plans", deadline, ["Tried two plans."])
'''
ENTRY = '    TWO_PLANS = ("two_plans", Abilities("A greedy tree or one join, whichever is better.", compiled=Compiled.NONE))\n'
EXAMPLE = ROOT / "openapi" / "examples" / "sensors.json"


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the program with one search more."""
    folder = tmp_path_factory.mktemp("house")
    for package in ("app", "models", "solvers"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "solvers" / "jtree" / "two_plans.py").write_text(SEARCH, "utf-8")
    entries = folder / "models" / "method.py"
    entries.write_text(entries.read_text("utf-8") + ENTRY, "utf-8")
    return folder


def said(house: Path, *command: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(house), "COLUMNS": "200"}
    done = subprocess.run([sys.executable, *command], cwd=house, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_stands_in_the_openapi_document(house: Path) -> None:
    document = json.loads(said(house, "-m", "app", "openapi"))
    assert "two_plans" in document["components"]["schemas"]["Method"]["enum"]


def test_the_command_line_lists_and_runs_it(house: Path) -> None:
    assert "two_plans" in said(house, "-m", "app", "plan", "--help")
    plan = json.loads(said(house, "-m", "app", "plan", "--method", "two_plans", str(EXAMPLE)))
    assert "Tried two plans." in plan["explanation"]


def test_its_plans_make_a_frontier(house: Path) -> None:
    frontier = json.loads(said(house, "-m", "app", "frontier", "--format", "json", "--method", "two_plans", str(EXAMPLE)))
    assert len(frontier["points"]) >= 2
    assert frontier["proof"] == "none"


def test_the_page_offers_it_and_workers_load_it(house: Path) -> None:
    code = "from app.service import page; print(page._choices()); from solvers.jtree.warm import LIBRARIES; print(LIBRARIES)"
    choices, libraries = said(house, "-c", code).splitlines()
    assert json.loads(choices)["/options/method"]["two_plans"] == "A greedy tree or one join, whichever is better."
    assert "solvers.jtree.two_plans" in libraries
