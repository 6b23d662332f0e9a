"""One worker process: reads a request's bytes, solves it, writes the answer's bytes; one at a time.

It is started by `app.pool` as `python -m app.worker` and talks over its standard input and output (`app.frames`). It ends when
its input does, so it never outlives the service. Each task has its deadline: a timer of the kernel that ends the process,
whatever native code it is in; the pool then starts another. A task that nobody waits for any more is given up: a solve sees that
whenever it looks at its own deadline, and the worker stays.
"""

from __future__ import annotations

import inspect
import logging
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from functools import cache

from app.body import BodyError, read
from app.endpoints import ENDPOINTS, Endpoint
from app.frames import ABANDONED, ANSWER, PROGRESS, READY, STOP, TASK
from app.logs import set_up_logging
from app.problems import problem
from models.base import Model
from models.progress import Incumbent
from models.request import MAX_STREAMS
from solvers.deadline import NOBODY, AbandonedError, Progress
from solvers.errors import WatersmeetError
from solvers.progress import Waiting

__all__ = ["Function", "main", "respond"]

Function = Callable[..., Model]

log = logging.getLogger("watersmeet.worker")


def respond(
    endpoint: Endpoint,
    function: Function,
    body: bytes,
    time_limit: float,
    start: Callable[[float], object],
    streams: int = MAX_STREAMS,
    progress: Progress = NOBODY,
) -> tuple[int, bytes, float]:
    """Status, bytes and seconds of the solve. `start` is told the solve's time limit before it begins."""
    try:
        request, limit = _limited(read(endpoint.request, body), time_limit)
        _check_streams(request, streams)
        start(limit)
        began = time.perf_counter()
        answer = function(request, progress) if _takes_progress(function) else function(request)
        return 200, answer.model_dump_json().encode(), time.perf_counter() - began
    except BodyError as bad:
        count = len(bad.errors)
        return 422, problem(422, f"The request has {count} fault{'s' if count > 1 else ''}.", bad.errors), 0.0
    except WatersmeetError as bad:
        return 422, problem(422, bad.detail, [(bad.pointer, bad.detail)]), 0.0
    except AbandonedError:
        return ABANDONED, b"", 0.0


@cache
def _takes_progress(function: Function) -> bool:
    return "progress" in inspect.signature(function).parameters


def _limited(request: Model, longest: float) -> tuple[Model, float]:
    """The request with its time limit cut to the longest, and that limit; a request without one may take the longest."""
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
    queries = [("", request)] + [(f"/cases/{i}/request", case.request) for i, case in enumerate(getattr(request, "cases", []))]
    counts = [(where, len(query.streams)) for where, holder in queries if (query := getattr(holder, "query", None)) is not None]
    errors = [(f"{where}/query/streams", f"streams: this service takes at most {most} of them, got {n}") for where, n in counts if n > most]
    if errors:
        raise BodyError(errors)


def load() -> list[Function]:
    """The solvers, by endpoint, warm."""
    from solvers.warm import warm

    functions = [endpoint.load() for endpoint in ENDPOINTS]
    warm()
    return functions


def main(load: Callable[[], list[Function]] = load) -> None:
    """Serve tasks until the input ends. Arguments: the longest time limit and the grace past it, in seconds; the most streams."""
    time_limit, grace, streams = map(float, sys.argv[1:])
    set_up_logging()
    tasks, answers = _take_over_pipes()
    functions = load()
    answers.write(READY)
    while header := tasks.read(TASK.size):
        if header == STOP:
            continue
        index, listens, id_length, length = TASK.unpack(header)
        request_id, body = tasks.read(id_length).decode(), tasks.read(length)
        signal.setitimer(signal.ITIMER_REAL, grace)  # for decoding; default action: the process ends
        try:
            status, answer, seconds = respond(
                ENDPOINTS[index],
                functions[index],
                body,
                time_limit,
                lambda limit: signal.setitimer(signal.ITIMER_REAL, limit + grace),
                int(streams),
                Waiting(answers.tell if listens else None, tasks.stopped),
            )
        except Exception:
            log.exception("solve failed", extra={"request_id": request_id, "path": ENDPOINTS[index].path})
            status, answer, seconds = 500, problem(500, "The server failed on this request; its log says why."), 0.0
        signal.setitimer(signal.ITIMER_REAL, 0)
        answers.write(ANSWER.pack(status, seconds, len(answer)) + answer)


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

    def tell(self, incumbent: Incumbent) -> None:
        body = incumbent.model_dump_json().encode()
        self.write(ANSWER.pack(PROGRESS, incumbent.seconds, len(body)) + body)


def _take_over_pipes() -> tuple[_Tasks, _Answers]:
    """The two pipes for ourselves: what a solver prints goes to standard error, and it reads nothing."""
    tasks, answers = _Tasks(os.dup(0)), _Answers(os.dup(1))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return tasks, answers


if __name__ == "__main__":
    main()
