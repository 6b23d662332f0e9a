"""Who may ask, and how often: optional API keys, and a rate limit per key.

Keys are compared in constant time, each with what was given, so that the time taken tells nothing of how much of a key was
right. The rate limit is a token bucket of one second's worth; without keys every client address has its own. An address that sends
wrong keys has a bucket for those, limit or not; a right key is not held up by what others at its address send.
"""

from __future__ import annotations

import hmac
import math
import time
from collections import OrderedDict
from collections.abc import Callable

__all__ = ["Access", "BadKeyError", "TooFastError"]

WRONG_KEYS = 10.0  # a second from one address, where no lower limit is set: who mistypes a key does not try again as fast
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
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    @property
    def open(self) -> bool:
        """Whether whoever asks is let in."""
        return not self._keys and not self._rate

    def admit(self, given: str, address: str) -> None:
        """Raises BadKeyError or TooFastError."""
        name, rate = f"address {address}", self._rate
        if self._keys:
            sent = given.encode()
            matches = [number for number, key in enumerate(self._keys) if hmac.compare_digest(key, sent)]
            if not matches:
                self._take(f"wrong {address}", min(rate or WRONG_KEYS, WRONG_KEYS))
                raise BadKeyError
            name = f"key {matches[0]}"
        if rate:
            self._take(name, rate)

    def _take(self, name: str, rate: float) -> None:
        now, burst = self._clock(), max(1.0, rate)
        tokens, then = self._buckets.pop(name, (burst, now))
        tokens = min(burst, tokens + (now - then) * rate)
        enough = tokens >= 1.0
        self._buckets[name] = (tokens - 1.0 if enough else tokens, now)
        if len(self._buckets) > MOST_BUCKETS:
            self._buckets.popitem(last=False)
        if not enough:
            raise TooFastError(max(1, math.ceil((1.0 - tokens) / rate)))
