"""A worker whose solver does what real ones must not: the name of the request's first stream says what."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import subprocess
import time

import solvers.jtree.progress
from app.service.endpoints import ENDPOINTS
from app.service.worker import Solver, main
from models.base import Model
from models.request import PlanRequest
from models.service import Health
from solvers.common.deadline import NOBODY, Deadline, Progress
from solvers.jtree.mjoin import mjoin_tree
from solvers.model.point import point_of
from solvers.planner import problem_of

FLOOD = 50_000  # incumbents, a quarter of a kilobyte each


def misbehave(request: Model, progress: Progress = NOBODY) -> Model:
    assert isinstance(request, PlanRequest)
    deed = request.query.streams[0].name
    if deed.startswith("tell_"):
        progress.begin(problem_of(request))
        progress.drafted(1.0, 1.0)
        deed = deed.removeprefix("tell_")
        if deed in ("die", "fail", "say_limit"):
            time.sleep(1.0)  # what fails in the same moment fails before its stream has begun
    if deed == "hang_with_an_mjoin":
        problem = problem_of(request)
        progress.begin(problem)
        progress.proven(1e-12)
        progress.found([point_of(problem.model, mjoin_tree(problem.model, problem.model.graph.all)[0])])
        time.sleep(3600)
    elif deed == "spin":
        while True:
            pass
    elif deed == "hang":
        time.sleep(3600)
    elif deed == "hang_in_native_code":
        re.fullmatch("(a+)+", "a" * 64 + "b")  # exponential, and never back in the interpreter
    elif deed == "hang_in_native_code_beside_other_threads":
        hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)  # half an hour, without the interpreter's lock
    elif deed == "hang_in_child_process":
        subprocess.run(["sleep", "3600"], check=True)
    elif deed == "nap":
        time.sleep(0.5)
    elif deed == "doze":
        time.sleep(3.0)
    elif deed == "die":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif deed == "fail":
        raise RuntimeError("secret of the inside")
    elif deed == "print":
        print("a solver that talks")  # noqa: T201
        os.system("echo and its child process")
    elif deed == "flood":
        solvers.jtree.progress.EVERY = 0.0
        for i in range(FLOOD):
            progress.drafted(1.0 / (2 + i), 1.0)
    elif deed == "wait":
        while not Deadline.after(3600.0, progress).expired():
            time.sleep(0.001)
    elif deed == "say_limit":
        raise_limit(request.options.time_limit)
    return Health(status="ok")


def raise_limit(limit: float) -> None:
    from solvers.common.errors import WatersmeetError

    raise WatersmeetError(f"limit {limit}", "/options/time_limit")


if __name__ == "__main__":
    main(lambda: [Solver(misbehave, endpoint.load_so_far()) for endpoint in ENDPOINTS])
