"""What the pool and its workers say to each other, over two pipes.

To a worker: a `TASK`, then the request's id and its body; at most one at a time. To the pool: `READY` once, then for each task any number of
`ANSWER` frames with status `PROGRESS`, each an incumbent, and one with any other status, which is the answer.

While a task is solved no second one comes, so whatever comes then means that nobody wants the answer any more: a `STOP`, or the end of the
input. A `STOP` that comes after the answer has gone is passed over. The pipe keeps the order, so no `STOP` hits the wrong task.
"""

from __future__ import annotations

import struct

__all__ = ["ABANDONED", "ANSWER", "PROGRESS", "READY", "STOP", "TASK"]

TASK = struct.Struct("!H?HI")  # endpoint, whether somebody listens, length of the request id, length of the body
STOP = TASK.pack(0xFFFF, False, 0, 0)
ANSWER = struct.Struct("!HdI")  # status, seconds in the solver, length of the body; then the body
READY = b"ready"  # the worker is warm
PROGRESS = 100
ABANDONED = 499  # stopped because nobody waited
