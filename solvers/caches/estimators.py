"""What a running join measures of its caches (paper 1 §4.3, App. A).

Problem: d, c and miss probabilities of caches that are not in use must be estimated while the join runs. Method: every statistic is
the average of its last W measurements; of a fraction of arriving tuples the whole way through the pipeline is profiled; the
misses of a cache that is not in use follow from the distinct keys in windows of W_d probes, counted by the bits that they set in a
Bloom filter of α·W_d bits.

Guarantee: averages are exact; a Bloom filter never counts more keys than there are, and `DistinctEstimator` corrects the paper's
b for keys that share a bit, by the expected number of empty bits. Complexity: O(1) per observation, O(α·W_d) bits per cache.
Pure: nothing here reads a clock or draws a number; hashes are those of `hashlib`, the same in every process.
"""

from __future__ import annotations

import hashlib
from collections import deque
from dataclasses import dataclass, field

__all__ = ["BloomFilter", "DistinctEstimator", "MissEstimator", "OperatorProfile", "WindowAverage"]

WINDOW = 10  # W of the paper's experiments
BITS_PER_PROBE = 8.0  # α; at 8 bits a probe one key in sixteen shares a bit, before the correction


@dataclass(slots=True)
class WindowAverage:
    """The average of the last W measurements."""

    window: int = WINDOW
    _values: deque[float] = field(default_factory=deque)

    def add(self, value: float) -> None:
        self._values.append(value)
        if len(self._values) > self.window:
            self._values.popleft()

    @property
    def count(self) -> int:
        return len(self._values)

    @property
    def full(self) -> bool:
        """Whether there are W measurements: before, no decision is based on them."""
        return len(self._values) >= self.window

    @property
    def total(self) -> float:
        return sum(self._values)

    @property
    def value(self) -> float | None:
        """The average, or None where nothing was measured."""
        return self.total / len(self._values) if self._values else None

    def clear(self) -> None:
        self._values.clear()


class BloomFilter:
    """A set of bits, one per key: enough to count distinct keys (App. A), not to look keys up."""

    def __init__(self, bits: int) -> None:
        if bits < 1:
            raise ValueError(f"a Bloom filter needs at least one bit, got {bits}")
        self.bits = bits
        self._set = bytearray((bits + 7) // 8)
        self.count = 0
        """Bits that are set: the paper's b."""

    def add(self, key: bytes) -> bool:
        """Set the key's bit; whether it was clear before."""
        place = int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big") % self.bits
        byte, bit = divmod(place, 8)
        new = not self._set[byte] >> bit & 1
        self._set[byte] |= 1 << bit
        self.count += new
        return new

    def clear(self) -> None:
        self._set = bytearray(len(self._set))
        self.count = 0


class DistinctEstimator:
    """Distinct keys among the probes since the last reset."""

    def __init__(self, probes: int, bits_per_probe: float = BITS_PER_PROBE) -> None:
        self.filter = BloomFilter(max(1, round(probes * bits_per_probe)))
        self.probes = 0

    def add(self, key: bytes) -> None:
        self.filter.add(key)
        self.probes += 1

    @property
    def distinct(self) -> float:
        """b corrected for keys that share a bit.

        Of m bits, x keys leave m·(1 − 1/m)^x empty. Keys come one at a time, and each sets the next bit with probability
        (m − b)/m: the expected number of keys until b bits are set is Σ_{k<b} m/(m − k). Never more than the probes.
        """
        m, b = self.filter.bits, self.filter.count
        if b >= m:
            return float(self.probes)
        return min(float(self.probes), sum(m / (m - k) for k in range(b)))

    def clear(self) -> None:
        self.filter.clear()
        self.probes = 0


class MissEstimator:
    """The miss probability of a cache that is not in use: distinct keys per probe, averaged over the last W windows of W_d probes."""

    def __init__(self, probes: int, window: int = WINDOW, bits_per_probe: float = BITS_PER_PROBE) -> None:
        if probes < 1:
            raise ValueError(f"a window needs at least one probe, got {probes}")
        self.probes = probes
        self._distinct = DistinctEstimator(probes, bits_per_probe)
        self.average = WindowAverage(window)

    def probe(self, key: bytes) -> None:
        """A tuple with this key reached the segment."""
        self._distinct.add(key)
        if self._distinct.probes == self.probes:
            self.average.add(self._distinct.distinct / self.probes)
            self._distinct.clear()

    @property
    def miss_probability(self) -> float | None:
        return self.average.value

    @property
    def ready(self) -> bool:
        return self.average.full


class OperatorProfile:
    """d and c of one operator from profiled tuples: d = rate · Σδ/W, c = Στ/Σδ (App. A)."""

    def __init__(self, window: int = WINDOW) -> None:
        self._tuples = WindowAverage(window)
        self._seconds = WindowAverage(window)

    def add(self, tuples: float, seconds: float) -> None:
        """One profiled arrival: how many tuples the operator processed for it, and in how many seconds."""
        self._tuples.add(tuples)
        self._seconds.add(seconds)

    @property
    def ready(self) -> bool:
        return self._tuples.full

    def d(self, rate: float) -> float | None:
        """Tuples per second that the operator processes, where `rate` tuples per second arrive in its pipeline."""
        return None if self._tuples.value is None else rate * self._tuples.value

    @property
    def c(self) -> float | None:
        """Seconds per tuple; None where none was processed."""
        return self._seconds.total / self._tuples.total if self._tuples.total > 0.0 else None
