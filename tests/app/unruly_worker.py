"""A worker whose solver does what real ones must not: the name of the request's first stream says what."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time

from app.endpoints import ENDPOINTS
from app.worker import main
from models.base import Model
from models.request import PlanRequest
from models.service import Health


def misbehave(request: Model) -> Model:
    assert isinstance(request, PlanRequest)
    deed = request.query.streams[0].name
    if deed == "hang":
        time.sleep(3600)
    elif deed == "hang_in_native_code":
        re.fullmatch("(a+)+", "a" * 64 + "b")  # exponential, and never back in the interpreter
    elif deed == "hang_in_child_process":
        subprocess.run(["sleep", "3600"], check=True)
    elif deed == "nap":
        time.sleep(0.5)
    elif deed == "die":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif deed == "fail":
        raise RuntimeError("secret of the inside")
    elif deed == "print":
        print("a solver that talks")  # noqa: T201
        os.system("echo and its child process")
    elif deed == "say_limit":
        raise_limit(request.options.time_limit)
    return Health(status="ok")


def raise_limit(limit: float) -> None:
    from solvers.errors import WatersmeetError

    raise WatersmeetError(f"limit {limit}", "/options/time_limit")


if __name__ == "__main__":
    main(lambda: [misbehave] * len(ENDPOINTS))
