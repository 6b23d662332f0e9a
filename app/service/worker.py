"""One worker process: reads a request's bytes, solves it, writes the answer's bytes; one at a time.

It is started by `pool` as `python -m app.service.worker` and talks over its standard input and output (`frames`). It ends when
its input does, so it never outlives the service. A solve that outlives its time limit is answered with what it has so far
(`overtime`); one that does not come to an end even then has a timer of the kernel that ends the process, whatever native code it is in,
and the pool starts another. A task that nobody waits for any more is given up: a solve sees that whenever it looks at its own deadline,
and the worker stays.
"""

from __future__ import annotations

import gc
import inspect
import logging
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from app.service.body import BodyError, read
from app.service.endpoints import ENDPOINTS, Endpoint
from app.service.frames import ABANDONED, PROGRESS, READY, STOP, TASK, frame
from app.service.logs import set_up_logging
from app.service.overtime import OVERTIME, Overtime
from app.service.problems import problem
from models.base import Model
from models.faults import MAX_STREAMS
from models.plan import Termination
from models.progress import Incumbent
from solvers.common.deadline import NOBODY, AbandonedError, Progress
from solvers.common.errors import WatersmeetError, in_range
from solvers.jtree.progress import Waiting

__all__ = ["Function", "Reply", "Solver", "main", "respond"]

Function = Callable[..., Model]
Start = Callable[[Model, float], object]
"""Called with the request and its time limit before the solve begins."""

log = logging.getLogger("watersmeet.worker")

COLLECT_EVERY = 32  # answers: between two tasks a look for cycles takes a millisecond


@dataclass(frozen=True, slots=True)
class Reply:
    """What a task is answered with."""

    status: int
    body: bytes
    seconds: float = 0.0
    """Time in the solver."""
    complete: bool = False
    """Whether the search came to its end: solved again, it would give the same bytes."""

    def frame(self, free: bool = True) -> bytes:
        return frame(self.status, self.body, self.seconds, self.complete, free)


def respond(
    endpoint: Endpoint, function: Function, body: bytes, time_limit: float, start: Start, streams: int = MAX_STREAMS, progress: Progress = NOBODY
) -> Reply:
    """The answer to the request that the body is, or what is wrong with it."""
    try:
        request, limit = _limited(read(endpoint.request, body), time_limit)
        _check_streams(request, streams)
        start(request, limit)
        began = time.perf_counter()
        with in_range():
            answer = function(request, progress) if _takes_progress(function) else function(request)
        return _reply(answer, began)
    except BodyError as bad:
        count = len(bad.errors)
        return Reply(422, problem(422, f"The request has {count} fault{'s' if count > 1 else ''}.", bad.errors))
    except WatersmeetError as bad:
        return Reply(422, problem(422, bad.detail, bad.errors))
    except AbandonedError:
        return Reply(ABANDONED, b"")


def _reply(answer: Model, began: float) -> Reply:
    complete = getattr(answer, "termination", Termination.COMPLETE) is Termination.COMPLETE
    return Reply(200, answer.model_dump_json().encode(), time.perf_counter() - began, complete)


@cache
def _takes_progress(function: Function) -> bool:
    return "progress" in inspect.signature(function).parameters


def _limited(request: Model, longest: float) -> tuple[Model, float]:
    """The request with its time limit cut to the longest, and that limit; a request without one may take the longest."""
    if isinstance(inner := getattr(request, "request", None), Model):
        shorter, seconds = _limited(inner, longest)
        return (request if shorter is inner else request.model_copy(update={"request": shorter})), seconds
    options = getattr(request, "options", None)
    holder = request if options is None else options
    limit = getattr(holder, "time_limit", None)
    if limit is None:
        return request, longest
    if limit <= longest:
        return request, limit
    cut = holder.model_copy(update={"time_limit": longest})
    return (cut if options is None else request.model_copy(update={"options": cut})), longest


def _check_streams(request: Model, most: int) -> None:
    """Refuse queries of more streams than this service takes."""
    queries = [("", request), ("/request", getattr(request, "request", None))] + [
        (f"/cases/{i}/request", case.request) for i, case in enumerate(getattr(request, "cases", []))
    ]
    counts = [(where, len(query.streams) + len(query.tables)) for where, holder in queries if (query := getattr(holder, "query", None)) is not None]
    errors = [(f"{where}/query/streams", f"streams: this service takes at most {most} of them, got {n}") for where, n in counts if n > most]
    if errors:
        raise BodyError(errors)


@dataclass(frozen=True, slots=True)
class Solver:
    """What answers one endpoint: in its time, and at once."""

    solve: Function
    so_far: Function | None


def load() -> list[Solver]:
    """The solvers, by endpoint, warm."""
    from solvers.jtree.warm import load_libraries, warm

    load_libraries()
    solvers = [Solver(endpoint.load(), endpoint.load_so_far()) for endpoint in ENDPOINTS]
    warm()
    return solvers


def main(load: Callable[[], list[Solver]] = load) -> None:
    """Serve tasks until the input ends. Arguments: the longest time limit and the grace past it, in seconds; the most streams."""
    time_limit, grace, streams = map(float, sys.argv[1:])
    set_up_logging()
    tasks, answers = _take_over_pipes()
    solvers = load()
    overtime = Overtime(answers.write)

    def tell(incumbent: Incumbent) -> None:
        overtime.send(frame(PROGRESS, incumbent.model_dump_json().encode(), incumbent.seconds))

    def stopped() -> bool:
        overtime.check()
        return tasks.stopped()

    def reply(index: int, listens: bool, at_once: bool, request_id: str, body: bytes) -> Reply:
        solver, waiting = solvers[index], Waiting(tell if listens else None, stopped)

        def start(request: Model, limit: float) -> None:
            began = time.perf_counter()
            signal.setitimer(signal.ITIMER_REAL, grace if at_once else limit + OVERTIME + grace)
            if (so_far := solver.so_far) is not None and not at_once:
                overtime.begin(limit, lambda: _reply(so_far(request, waiting.best), began).frame(free=False))

        signal.setitimer(signal.ITIMER_REAL, grace)  # for decoding; default action: the process ends
        try:
            solve = solver.solve if not at_once or solver.so_far is None else solver.so_far
            return respond(ENDPOINTS[index], solve, body, time_limit, start, int(streams), waiting)
        except Exception:
            log.exception("solve failed", extra={"request_id": request_id, "path": ENDPOINTS[index].path})
            return Reply(500, problem(500, "The server failed on this request; its log says why."))

    gc.collect()
    gc.freeze()
    gc.disable()  # a plan is tens of thousands of objects and no cycles: looking for some while it is made takes as long as making it
    answered = 0
    answers.write(READY)
    while header := tasks.read(TASK.size):
        if header == STOP:
            continue
        index, listens, at_once, id_length, length = TASK.unpack(header)
        request_id, body = tasks.read(id_length).decode(), tasks.read(length)
        overtime.end(reply(index, listens, at_once, request_id, body).frame())
        signal.setitimer(signal.ITIMER_REAL, 0)
        answered += 1
        if answered % COLLECT_EVERY == 0:
            gc.collect()


class _Tasks:
    """The pipe that tasks come from, read without a buffer: what has not been read can be seen to be there."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._poll = descriptor, select.poll()
        self._poll.register(descriptor, select.POLLIN)

    def read(self, length: int) -> bytes:
        """So many bytes; fewer where the input ends."""
        parts = []
        while length and (part := os.read(self._descriptor, length)):
            parts.append(part)
            length -= len(part)
        return b"".join(parts)

    def stopped(self) -> bool:
        """Raises AbandonedError as soon as something has come while a task is solved."""
        if self._poll.poll(0):
            raise AbandonedError
        return False


class _Answers:
    """The pipe that answers go to."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._descriptor, data) :]


def _take_over_pipes() -> tuple[_Tasks, _Answers]:
    """Keep standard input and output for frames: what a solver prints goes to standard error, and it finds no input."""
    tasks, answers = _Tasks(os.dup(0)), _Answers(os.dup(1))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return tasks, answers


if __name__ == "__main__":
    main()
