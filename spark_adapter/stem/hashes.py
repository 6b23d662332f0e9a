"""Spark's `xxhash64` on columns of a frame: the cell of a row that lies in a state already.

Rows on their way in get their coordinates from Spark, in compiled code (`engine`). When a state is laid out for another grid its rows are
frames, and need the same numbers: XXH64 with Spark's seed of 42, of the bytes that Spark takes for each type. Texts of one length are hashed
together, so the work is that of numpy, not of a loop over rows. A test holds every type against Spark's own function.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

__all__ = ["xxhash64"]

Words = np.ndarray[Any, np.dtype[np.uint64]]
Bytes = np.ndarray[Any, np.dtype[np.uint8]]

SEED = np.uint64(42)
P1, P2, P3, P4, P5 = (
    np.uint64(prime) for prime in (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
)
LONG_DIGITS = 18  # decimals of up to so many digits are one number to Spark, longer ones the bytes of one
NOT_A_NUMBER = np.uint64(0x7FF8000000000000)  # all of them are one value to Spark


def xxhash64(column: pl.Series) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Of every value, none of them null."""
    with np.errstate(over="ignore"):
        return _hashed(column).view(np.int64)


def _hashed(column: pl.Series) -> Words:
    kind = column.dtype
    if isinstance(kind, pl.Decimal):
        unscaled = column.to_physical()
        if kind.precision is not None and kind.precision <= LONG_DIGITS:
            return _longs(unscaled.cast(pl.Int64).to_numpy().view(np.uint64))
        return _texts(pl.Series([_shortest(number) for number in unscaled.to_list()], dtype=pl.Binary))
    if kind == pl.Float64:
        numbers = column.to_numpy() + 0.0  # −0.0 equals 0.0
        return _longs(np.where(np.isnan(numbers), NOT_A_NUMBER, numbers.view(np.uint64)))
    if kind == pl.String:
        return _texts(column.cast(pl.Binary))
    if kind == pl.Binary:
        return _texts(column)
    if kind == pl.Boolean or kind == pl.Date:
        return _ints(column.to_physical().cast(pl.Int32).to_numpy().view(np.uint32).astype(np.uint64))
    return _longs(column.to_physical().cast(pl.Int64).to_numpy().view(np.uint64))


def _shortest(number: int) -> bytes:
    """As Java writes a whole number: the fewest bytes that hold it and its sign, the greatest first.

    >>> _shortest(127), _shortest(128), _shortest(-128)
    (b'\\x7f', b'\\x00\\x80', b'\\x80')
    """
    return number.to_bytes((~number if number < 0 else number).bit_length() // 8 + 1, "big", signed=True)


def _rotated(x: Words, by: int) -> Words:
    return (x << np.uint64(by)) | (x >> np.uint64(64 - by))


def _mixed(x: Words) -> Words:
    x = (x ^ (x >> np.uint64(33))) * P2
    x = (x ^ (x >> np.uint64(29))) * P3
    return x ^ (x >> np.uint64(32))


def _with_word(x: Words, word: Words) -> Words:
    """The hash so far with eight more bytes."""
    return _rotated(x ^ _round(np.zeros_like(word), word), 27) * P1 + P4


def _with_half(x: Words, half: Words) -> Words:
    """The hash so far with four more bytes."""
    return _rotated(x ^ (half * P1), 23) * P2 + P3


def _round(lane: Words, word: Words) -> Words:
    return _rotated(lane + word * P2, 31) * P1


def _longs(words: Words) -> Words:
    return _mixed(_with_word(np.full(len(words), SEED + P5 + np.uint64(8)), words))


def _ints(halves: Words) -> Words:
    return _mixed(_with_half(np.full(len(halves), SEED + P5 + np.uint64(4)), halves))


def _texts(column: pl.Series) -> Words:
    """All texts of one length at a time."""
    found = np.empty(len(column), dtype=np.uint64)
    lengths = column.bin.size().to_numpy()
    for length in np.unique(lengths):
        of_this = np.flatnonzero(lengths == length)
        together = b"".join(column[pl.Series(of_this)].to_list())
        found[of_this] = _same_length(np.frombuffer(together, dtype=np.uint8).reshape(len(of_this), int(length)))
    return found


def _same_length(texts: Bytes) -> Words:
    """XXH64 of every row."""
    count, length = texts.shape
    words = np.ascontiguousarray(texts[:, : length & -8]).view("<u8").astype(np.uint64, copy=False)
    done = 0
    if length >= 32:
        lanes = [np.full(count, start) for start in (SEED + P1 + P2, SEED + P2, SEED, SEED - P1)]
        for done in range(4, length // 32 * 4 + 1, 4):
            lanes = [_round(lane, words[:, done - 4 + k]) for k, lane in enumerate(lanes)]
        x = _rotated(lanes[0], 1) + _rotated(lanes[1], 7) + _rotated(lanes[2], 12) + _rotated(lanes[3], 18)
        for lane in lanes:
            x = (x ^ _round(np.zeros_like(lane), lane)) * P1 + P4
    else:
        x = np.full(count, SEED + P5)
    x = x + np.uint64(length)
    for k in range(done, length // 8):
        x = _with_word(x, words[:, k])
    at = length & -8
    if at + 4 <= length:
        x = _with_half(x, np.ascontiguousarray(texts[:, at : at + 4]).view("<u4").astype(np.uint64)[:, 0])
        at += 4
    for k in range(at, length):
        x = _rotated(x ^ (texts[:, k].astype(np.uint64) * P5), 11) * P1
    return _mixed(x)
