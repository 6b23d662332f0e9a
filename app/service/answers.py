"""Answers that need no worker: what was solved before, and what is being solved for somebody else.

A request's key is its canonical form (keys sorted, no spaces, numbers spelt alike) with its path and our version. Plans are
deterministic, so the bytes kept under a key are those that solving again would give; an answer whose search was cut off, of
which the worker tells, is not kept, because a quieter moment may give a better one. At most so many bytes are kept; the least
recently used answer goes first. Requests with the same key that are in flight at the same time share one solve, which goes on while
anybody waits for it. If the first of them asked for progress, any of the others may listen as well.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Coroutine
from importlib.metadata import version
from typing import Any, NoReturn

from cachetools import LRUCache

from app.service.endpoints import Endpoint
from app.service.pool import Answer, Tell

__all__ = ["Answers", "Key", "key_of"]

Work = Callable[[Tell | None], Awaitable[Answer]]
"""Solves a request and calls its argument with every better plan on the way; with None, nobody listens."""

LARGEST_KEYED = 256 * 1024  # bytes: reading a body takes the event loop's time, 2 ms for this one
MOST_SPELLINGS = 10_000  # bodies whose key is remembered, so that the same bytes are not read again: 2 MB
OVERHEAD = 512  # bytes of a kept answer beside its body
EXACT_DIGITS = 15  # integers of more may differ where the doubles do not
VERSION = version("watersmeet").encode()


Key = bytes
"""What a request is: a digest."""


def _number(digits: str) -> float | str:
    return float(digits) if len(digits) <= EXACT_DIGITS else f"\0{digits}"  # no text of a request has such a character


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is given twice")
    return found


def key_of(endpoint: Endpoint, body: bytes) -> Key | None:
    """The request's key; None for a body that a worker has to refuse, or that is too large to look at here."""
    if len(body) > LARGEST_KEYED:
        return None
    try:
        value = json.loads(body.decode(), parse_int=_number, parse_constant=_refuse, object_pairs_hook=_object)
        canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (ValueError, RecursionError):
        return None
    return hashlib.sha256(b"\n".join((VERSION, endpoint.path.encode(), canonical.encode()))).digest()


class _Flight:
    """A solve, who waits for it, and who listens to it."""

    def __init__(self) -> None:
        self.task: asyncio.Task[Answer] | None = None
        self.waiting = 0
        self.listeners: list[Tell] = []
        self._newest: bytes | None = None

    def tell(self, incumbent: bytes) -> None:
        self._newest = incumbent
        for listener in self.listeners:
            listener(incumbent)

    def listen(self, listener: Tell) -> None:
        self.listeners.append(listener)
        if self._newest is not None:
            listener(self._newest)


def _size(answer: Answer) -> int:
    return len(answer.body) + OVERHEAD


class Answers:
    """Kept answers of at most `most` bytes, and solves in flight."""

    def __init__(self, most: int) -> None:
        self._kept: LRUCache[Key, Answer] = LRUCache(most, _size)
        self._flights: dict[Key, _Flight] = {}
        self._spellings: LRUCache[bytes, Key] = LRUCache(MOST_SPELLINGS)

    @property
    def bytes_kept(self) -> int:
        """Bytes that are kept."""
        return int(self._kept.currsize)

    def key(self, endpoint: Endpoint, body: bytes) -> Key | None:
        """The same as `key_of`; bytes that came before are only hashed."""
        spelling = hashlib.sha256(endpoint.path.encode() + b"\n" + body).digest()
        key = self._spellings.get(spelling)
        if key is None and (key := key_of(endpoint, body)) is not None:
            self._spellings[spelling] = key
        return key

    def kept(self, key: Key) -> Answer | None:
        """The answer, where it is known."""
        return self._kept.get(key)

    @property
    def sharing(self) -> int:
        """Requests that wait for the solve of another one."""
        return sum(max(0, flight.waiting - 1) for flight in self._flights.values())

    def in_flight(self, key: Key) -> bool:
        """Whether somebody is waiting for the same answer."""
        return key in self._flights

    def solve(self, key: Key, work: Work, tell: Tell | None = None) -> Coroutine[Any, Any, Answer]:
        """The answer of `work`, or of the same work that is being done already. The work stops when the last who waits for it is cancelled.

        It is in flight from this call on, so that of two who ask in the same moment the second is seen to share.
        """
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = _Flight()
            flight.task = asyncio.ensure_future(self._work(key, work, flight.tell if tell else None))
        return self._wait(key, flight, tell)

    async def _wait(self, key: Key, flight: _Flight, tell: Tell | None) -> Answer:
        assert flight.task is not None
        flight.waiting += 1
        if tell:
            flight.listen(tell)
        try:
            return await asyncio.shield(flight.task)
        finally:
            flight.waiting -= 1
            if tell:
                flight.listeners.remove(tell)
            if not flight.waiting and not flight.task.done():
                self._flights.pop(key, None)
                flight.task.cancel()

    async def _work(self, key: Key, work: Work, tell: Tell | None) -> Answer:
        mine = asyncio.current_task()
        try:
            answer = await work(tell)
        finally:
            if (flight := self._flights.get(key)) is not None and flight.task is mine:
                del self._flights[key]
        if answer.status == 200 and answer.complete and _size(answer) <= self._kept.maxsize:
            self._kept[key] = answer
        return answer
