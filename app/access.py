"""Who may ask, and how often: optional API keys, and a rate limit per key.

Keys are compared in constant time, each with what was given, so that the time taken tells nothing of how much of a key was
right. The rate limit is a token bucket of one second's worth; without keys every client address has its own.
"""

from __future__ import annotations

import hmac
import math
import time
from collections import OrderedDict
from collections.abc import Callable

__all__ = ["Access", "BadKeyError", "TooFastError"]

MOST_BUCKETS = 10_000  # addresses remembered at a time; one that is forgotten starts with a full bucket


class BadKeyError(Exception):
    """No key, or not one of ours."""


class TooFastError(Exception):
    """Asked too often."""

    def __init__(self, seconds: int) -> None:
        super().__init__(seconds)
        self.seconds = seconds
        """When to ask again."""


class Access:
    """`keys` are the ones that may ask (none: everybody); `rate` is requests per second for each (0: no limit)."""

    def __init__(self, keys: tuple[str, ...], rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._keys = [key.encode() for key in keys]
        self._rate, self._clock = rate, clock
        self._burst = max(1.0, rate)
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def admit(self, given: str, address: str) -> None:
        """Raises BadKeyError or TooFastError."""
        name = address
        if self._keys:
            sent = given.encode()
            matches = [number for number, key in enumerate(self._keys) if hmac.compare_digest(key, sent)]
            if not matches:
                raise BadKeyError
            name = f"key {matches[0]}"
        if self._rate:
            self._take(name)

    def _take(self, name: str) -> None:
        now = self._clock()
        tokens, then = self._buckets.pop(name, (self._burst, now))
        tokens = min(self._burst, tokens + (now - then) * self._rate)
        enough = tokens >= 1.0
        self._buckets[name] = (tokens - 1.0 if enough else tokens, now)
        if len(self._buckets) > MOST_BUCKETS:
            self._buckets.popitem(last=False)
        if not enough:
            raise TooFastError(max(1, math.ceil((1.0 - tokens) / self._rate)))
