"""What the pool and its workers say to each other, over two pipes.

To a worker: a `TASK`, then the request's id and its body; at most one at a time. To the pool: `READY` once, then for each task any number of
`ANSWER` frames with status `PROGRESS`, each an incumbent, and one with any other status, which is the answer. An answer that is sent while the
solver is still at work (`app.service.overtime`) says that the worker is not free; one more frame, `ABANDONED` and empty, says when it is.

While a task is solved no second one comes, so whatever comes then means that nobody wants the answer any more: a `STOP`, or the end of the
input. A `STOP` that comes after the answer has gone is passed over. The pipe keeps the order, so no `STOP` hits the wrong task.
"""

from __future__ import annotations

import struct

__all__ = ["ABANDONED", "ANSWER", "PROGRESS", "READY", "STOP", "TASK", "frame"]

# Endpoint; whether somebody listens; whether to answer at once, without a search; length of the request id; length of the body.
TASK = struct.Struct("!H??HI")
STOP = TASK.pack(0xFFFF, False, False, 0, 0)
# Status; whether no time limit cut the answer off; whether the worker is free; seconds in the solver; length of the body, which follows.
ANSWER = struct.Struct("!H??dI")
READY = b"ready"  # the worker is warm
PROGRESS = 100
ABANDONED = 499  # nobody waits for the answer any more: the solver was stopped, and logs and metrics count the request by this


def frame(status: int, body: bytes = b"", seconds: float = 0.0, complete: bool = False, free: bool = True) -> bytes:
    """An answer as it goes over the pipe."""
    return ANSWER.pack(status, complete, free, seconds, len(body)) + body
