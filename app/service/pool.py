"""A bounded pool of worker processes, asked from the event loop.

Each worker is a fresh interpreter (never a fork of this one) that talks over its standard input and output; asyncio
watches those pipes itself, so a task costs two writes and two reads and no thread. A worker that overstays its time
(its own timer ends it) or dies is replaced. Its request is still answered: if the worker ran out of time, another worker answers at once, as well as
it can without a search. A worker whose client has gone is told to stop, and replaced only if it does not.
Nobody waits without bound: places are counted before a body is read, and waiting for a worker has its own limit.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from app.service.frames import ANSWER, PROGRESS, READY, STOP, TASK
from app.service.settings import Settings

__all__ = ["Answer", "OverloadedError", "Pool", "Tell", "WorkerLostError"]

Tell = Callable[[bytes], object]
"""Called with every better plan on the way, as JSON."""

RESTART_PAUSE = 1.0  # seconds between attempts to start a worker that does not start
CLOSE_SECONDS = 1.0  # an idle worker ends at once when its input does; one that does not is killed

ROOT = Path(__file__).resolve().parents[2]

log = logging.getLogger("watersmeet.pool")


class OverloadedError(Exception):
    """All places are taken, or no worker became free in time."""


class WorkerLostError(Exception):
    """The worker ended before it answered."""

    def __init__(self, timed_out: bool) -> None:
        super().__init__("timed out" if timed_out else "died")
        self.timed_out = timed_out


@dataclass(frozen=True)
class Answer:
    status: int
    seconds: float
    """Time in the solver."""
    body: bytes
    complete: bool = False
    """Whether its search came to an end: solved again, it would give the same bytes."""
    waited: float = 0.0
    """Seconds it waited for a worker."""

    @cached_property
    def etag(self) -> str:
        """Names the bytes."""
        return hashlib.sha256(self.body).hexdigest()[:32]

    @cached_property
    def kept_headers(self) -> tuple[tuple[bytes, bytes], ...]:
        """Headers of the bytes when they are sent again. Starlette's way to them takes an eighth of the time that sending takes in all."""
        etag, length = f'"{self.etag}"'.encode(), str(len(self.body)).encode()
        return (b"content-length", length), (b"content-type", b"application/json"), (b"etag", etag), (b"x-cache", b"hit")


class _Worker:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None and process.stdout is not None
        self.process, self.tasks, self.answers = process, process.stdin, process.stdout

    @classmethod
    async def start(cls, settings: Settings, module: str) -> _Worker:
        """A process that is not warm yet."""
        path = os.pathsep.join(part for part in (str(ROOT), os.environ.get("PYTHONPATH", "")) if part)
        # -P: a folder called `app` or `models` where the service was started is not ours.
        return cls(
            await asyncio.create_subprocess_exec(
                sys.executable,
                *("-P", "-m", module, str(settings.time_limit), str(settings.grace), str(settings.streams)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": path},
                start_new_session=True,  # its own group: a solver's child processes end with it
            )
        )

    def ask(self, endpoint: int, request_id: str, body: bytes, listens: bool, at_once: bool) -> None:
        name = request_id.encode()
        self.tasks.write(TASK.pack(endpoint, listens, at_once, len(name), len(body)) + name + body)

    def stop(self) -> None:
        """Tell the worker that nobody waits for the answer any more."""
        self.tasks.write(STOP)

    async def reply(self, tell: Tell | None) -> tuple[Answer, bool]:
        """An answer, and whether the worker is free; if it is not, it says so with another one."""
        await self.tasks.drain()
        while True:
            status, complete, free, seconds, length = ANSWER.unpack(await self.answers.readexactly(ANSWER.size))
            content = await self.answers.readexactly(length)
            if status != PROGRESS:
                return Answer(status, seconds, content, complete), free
            if tell is not None:
                tell(content)

    def kill(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)


class Pool:
    """`settings.worker_count` workers, each running `module`, and `settings.queue` places to wait."""

    def __init__(self, settings: Settings, module: str = "app.service.worker") -> None:
        self._settings, self._module = settings, module
        self._workers: set[_Worker] = set()
        self._idle: list[_Worker] = []
        self._waiting: deque[asyncio.Future[_Worker]] = deque()
        self._background: set[asyncio.Task[Any]] = set()
        self._placed = 0
        self.warm = 0
        """Workers that are up and warm."""
        self.stopped = 0
        """Solves that were told to stop because nobody waited, so far."""
        self.replaced = 0
        """Workers that ended before their time, so far."""

    @property
    def size(self) -> int:
        return self._settings.worker_count

    @property
    def ready(self) -> bool:
        """Whether every worker is warm."""
        return self.warm == self.size

    @property
    def busy(self) -> int:
        return self.warm - len(self._idle)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def open(self) -> None:
        """Start all workers, without waiting for them."""
        for _ in range(self.size):
            self._spawn(self._keep_worker())

    async def close(self) -> None:
        """End all workers."""
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        ending = [asyncio.ensure_future(worker.process.wait()) for worker in self._workers]
        for worker in self._workers:
            worker.tasks.close()
        if ending:
            await asyncio.wait(ending, timeout=CLOSE_SECONDS)
        for worker in self._workers:
            worker.kill()
        await asyncio.gather(*ending)

    @contextmanager
    def place(self) -> Iterator[None]:
        """A place for one request, from before its body is read. Raises OverloadedError where all are taken."""
        if self._placed >= self.size + self._settings.queue:
            raise OverloadedError
        self._placed += 1
        try:
            yield
        finally:
            self._placed -= 1

    async def solve(self, endpoint: int, request_id: str, body: bytes, tell: Tell | None = None) -> Answer:
        """The answer of some worker; `tell` hears of incumbents before it.

        Raises OverloadedError or WorkerLostError. Cancelled, it has the worker stop; that is a deadline like any other, with the same grace.
        """
        began = time.monotonic()
        worker = await self._take()
        waited = time.monotonic() - began
        try:
            answer = await self._ask(worker, endpoint, request_id, body, tell)
        except WorkerLostError as lost:
            if not lost.timed_out:
                raise
            # It was in native code that let nothing else run. What can be said at once takes another worker milliseconds.
            answer = await self._ask(await self._take(), endpoint, request_id, body, None, at_once=True)
        return replace(answer, waited=waited)

    async def _ask(self, worker: _Worker, endpoint: int, request_id: str, body: bytes, tell: Tell | None, at_once: bool = False) -> Answer:
        worker.ask(endpoint, request_id, body, tell is not None, at_once)
        promise: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        task = self._spawn(self._converse(worker, request_id, tell, promise))
        try:
            return await promise
        except asyncio.CancelledError:
            if not task.done():
                worker.stop()
                self.stopped += 1
                asyncio.get_running_loop().call_later(self._settings.grace, task.cancel)
            raise

    async def _converse(self, worker: _Worker, request_id: str, tell: Tell | None, promise: asyncio.Future[Answer]) -> None:
        """Read what a worker sends until it is free or has ended; its first answer is the result of the promise."""
        free = False
        try:
            while not free:
                answer, free = await worker.reply(tell)
                if not promise.done():
                    promise.set_result(answer)
        except (asyncio.IncompleteReadError, OSError):
            worker.kill()
            status = await worker.process.wait()
            log.warning("worker ended", extra={"request_id": request_id, "exit_status": status})
            if not promise.done():
                promise.set_exception(WorkerLostError(status == -signal.SIGALRM))
        except asyncio.CancelledError:
            log.warning("worker did not stop", extra={"request_id": request_id})
            worker.kill()
            promise.cancel()
            raise
        else:
            self._give_back(worker)

    async def _take(self) -> _Worker:
        if self._idle:
            return self._idle.pop()
        promise: asyncio.Future[_Worker] = asyncio.get_running_loop().create_future()
        self._waiting.append(promise)
        try:
            async with asyncio.timeout(self._settings.queue_seconds):
                return await promise
        except (TimeoutError, asyncio.CancelledError) as stopped:
            if promise.done() and not promise.cancelled():
                self._give_back(promise.result())  # handed over in the same moment
            else:
                with suppress(ValueError):
                    self._waiting.remove(promise)
            if isinstance(stopped, TimeoutError):
                raise OverloadedError from None
            raise

    def _give_back(self, worker: _Worker) -> None:
        while self._waiting:
            promise = self._waiting.popleft()
            if not promise.done():
                promise.set_result(worker)
                return
        self._idle.append(worker)

    async def _keep_worker(self) -> None:
        """Keep one worker alive: start it, and another whenever it ends."""
        while True:
            worker = await _Worker.start(self._settings, self._module)
            self._workers.add(worker)
            try:
                await worker.answers.readexactly(len(READY))
            except asyncio.IncompleteReadError:
                log.error("worker did not start", extra={"exit_status": await worker.process.wait()})
                await asyncio.sleep(RESTART_PAUSE)
            else:
                self.warm += 1
                self._give_back(worker)
                await worker.process.wait()
                self.warm -= 1
                self.replaced += 1
                if worker in self._idle:
                    self._idle.remove(worker)
            worker.kill()  # what it may have started
            self._workers.discard(worker)

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """A task that is kept from being collected until it is done."""
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task
