"""Answers as a stream of server-sent events, for clients that ask for `text/event-stream`.

`event: incumbent` for every better plan or bound, at most ten a second, the newest alone; `event: answer` with the bytes that a plain request
would get; or `event: problem` for what goes wrong once the stream has begun. What goes wrong before is an ordinary problem with its status.
The stream begins with the first incumbent, or after QUIET seconds. Comments in between keep proxies from cutting a
quiet connection.

sse-starlette would write frames and comments, which takes ten lines here. The rest would stay: keeping the newest incumbent alone, ending with the
solve or with its reader, and telling the log how it ended. So it is no dependency.

A slow reader costs nothing but its connection: incumbents that it has not read are forgotten for the newest, and the solve does not wait
for it. A reader that leaves has its solve stopped, unless others wait for the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.service.frames import ABANDONED
from app.service.pool import Answer

__all__ = ["EVENT_STREAM", "QUIET", "EventStream", "Newest", "wants_stream"]

EVENT_STREAM = "text/event-stream"
EVERY = 0.1  # seconds between two incumbents
QUIET = 3.0  # seconds without an event after which a comment is sent; proxies cut connections after 30 and more
COMMENT = b": still working\n\n"
HEADERS = {"Content-Type": EVENT_STREAM, "Cache-Control": "no-store", "X-Accel-Buffering": "no", "Vary": "Accept"}

Failure = Callable[[BaseException], tuple[int, bytes]]


@lru_cache(100)
def wants_stream(accept: str) -> bool:
    """Whether a stream is preferred to JSON (RFC 9110 §12.5.1). JSON is what those get who do not say, or do not mind.

    >>> wants_stream("text/event-stream"), wants_stream("*/*"), wants_stream("application/json, text/event-stream;q=0.5")
    (True, False, False)
    """
    best = {EVENT_STREAM: (-1, 0.0), "application/json": (-1, 0.0)}  # how specific the range is that counts, and its weight
    for entry in accept.lower().split(","):
        media_range, *parameters = (part.strip() for part in entry.split(";"))
        weight = next((_weight(value) for name, _, value in (part.partition("=") for part in parameters) if name.strip() == "q"), 1.0)
        for media_type, (known, _) in best.items():
            kind = media_type.partition("/")[0]
            specific = {media_type: 2, f"{kind}/*": 1, "*/*": 0}.get(media_range, -1)
            if specific > known:
                best[media_type] = (specific, weight)
    return best[EVENT_STREAM][1] > best["application/json"][1]


def _weight(text: str) -> float:
    try:
        return min(1.0, max(0.0, float(text.strip())))
    except ValueError:
        return 0.0


class Newest:
    """Holds the newest incumbent; an older one that was not read is dropped."""

    def __init__(self) -> None:
        self._incumbent: bytes | None = None
        self.there = asyncio.Event()

    def put(self, incumbent: bytes) -> None:
        self._incumbent = incumbent
        self.there.set()

    async def told(self) -> None:
        """Wait until there is an incumbent."""
        await self.there.wait()

    def take(self) -> bytes:
        self.there.clear()
        assert self._incumbent is not None
        return self._incumbent


class EventStream(Response):
    """The incumbents that come to `newest` while `solving` goes on, then its answer.

    `failure` makes of an exception the status that a plain answer would have had, and the problem to send. `finished` is called at the end with the
    status and the number of incumbents that were sent.
    """

    def __init__(
        self,
        solving: asyncio.Future[Answer],
        newest: Newest,
        gone: Awaitable[None],
        failure: Failure,
        finished: Callable[[int, int], object],
        headers: Mapping[str, str],
    ) -> None:
        super().__init__(headers={**HEADERS, **headers})
        del self.headers["content-length"]
        self._solving: asyncio.Future[Any] = solving
        self._newest, self._gone = newest, asyncio.ensure_future(gone)
        self._failure, self._finished = failure, finished
        self._told = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def put(content: bytes, more: bool = True) -> None:
            await send({"type": "http.response.body", "body": content, "more_body": more})

        status = ABANDONED  # unless it is read to its end
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            while await self._until_something():
                if self._newest.there.is_set():
                    self._told += 1
                    await put(_event(b"incumbent", self._newest.take()))
                    await self._wait(EVERY)
                else:
                    await put(COMMENT)
            if not self._gone.done():
                if self._newest.there.is_set():
                    self._told += 1
                    await put(_event(b"incumbent", self._newest.take()))
                status, event = await self._ending()
                await put(event, more=False)
        finally:
            self._solving.cancel()
            self._gone.cancel()
            self._finished(status, self._told)

    async def _until_something(self) -> bool:
        """Wait for an incumbent or a while; False where the solve is over or the reader has gone."""
        newer = asyncio.ensure_future(self._newest.told())
        try:
            await self._wait(QUIET, newer)
        finally:
            newer.cancel()
        return not (self._solving.done() or self._gone.done())

    async def _wait(self, seconds: float, *others: asyncio.Future[Any]) -> None:
        """At most so long, for the end of the solve, the reader, or something else."""
        await asyncio.wait([self._solving, self._gone, *others], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)

    async def _ending(self) -> tuple[int, bytes]:
        try:
            answer: Answer = self._solving.result()
        except Exception as failed:
            status, problem = self._failure(failed)
            return status, _event(b"problem", problem)
        return answer.status, _event(b"answer" if answer.status == 200 else b"problem", answer.body)


def _event(name: bytes, data: bytes) -> bytes:
    return b"event: " + name + b"\ndata: " + data + b"\n\n"
