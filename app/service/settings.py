"""Settings of the service: one environment variable each, WATERSMEET_ and the field's name in capitals.

docs/service.md lists them as they are here, which a test compares. Reading takes twenty lines, so there is no library for it: pydantic-settings would
read the same variables, but sentences that name a variable would still have to be made here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from models.faults import MAX_STREAMS
from models.request import MAX_TIME_LIMIT

__all__ = ["PREFIX", "Settings", "SettingsError", "settings_from"]

PREFIX = "WATERSMEET_"


class SettingsError(ValueError):
    """A variable that does not hold what it should; the message names it."""


def _setting(default: float, doc: str, least: float, most: float, shown: str = "") -> Any:
    return field(default=default, metadata={"doc": doc, "least": least, "most": most, "shown": shown})


def _text(doc: str, shown: str) -> Any:
    return field(default="", repr=False, metadata={"doc": doc, "shown": shown})


@dataclass(frozen=True, slots=True)
class Settings:
    """How the service runs. Whole numbers where the default is one."""

    workers: int = _setting(0, "Worker processes; each solves one request at a time.", 0, 1024, "0: one per core")
    queue: int = _setting(32, "Requests that may wait for a worker; one more is answered 503.", 0, 100_000)
    queue_seconds: float = _setting(10.0, "Seconds a request may wait for a worker; then it is answered 503.", 0.0, 3600.0)
    time_limit: float = _setting(MAX_TIME_LIMIT, "Longest time_limit a solve gets, in seconds; a longer one is cut to this.", 0.001, MAX_TIME_LIMIT)
    grace: float = _setting(
        5.0, "Seconds that a solve past its time_limit, or told to stop, may take to end; then its worker is replaced.", 0.1, 3600.0
    )
    body_bytes: int = _setting(16 * 1024 * 1024, "Largest request body, in bytes; a larger one is answered 413.", 1, 1 << 30, "16777216: 16 MiB")
    body_seconds: float = _setting(10.0, "Seconds a client may take to send its body; then it is answered 408.", 0.1, 3600.0)
    streams: int = _setting(MAX_STREAMS, "Most streams of a query; one of more is answered 422.", 1, MAX_STREAMS)
    cache_bytes: int = _setting(
        64 * 1024 * 1024,
        "Bytes of answers kept for requests that come again; 0: none, and requests in flight are not shared either.",
        0,
        1 << 40,
        "67108864: 64 MiB",
    )
    api_keys: str = _text("Keys that may ask, separated by commas, sent as X-API-Key; others are answered 401.", "none: everybody may")
    rate_limit: float = _setting(
        0.0, "Requests per second for each key, or each address without keys; one more is answered 429.", 0.0, 1e6, "0: no limit"
    )
    shutdown_seconds: float = _setting(30.0, "Seconds that running solves may take to end when the server is asked to stop.", 0.0, 3600.0)

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(key.strip() for key in self.api_keys.split(",") if key.strip())

    @property
    def worker_count(self) -> int:
        return self.workers or len(os.sched_getaffinity(0))


def settings_from(environment: Mapping[str, str] | None = None) -> Settings:
    """The settings that the environment asks for; defaults for the rest.

    >>> settings_from({"WATERSMEET_QUEUE": "8"}).queue
    8
    """
    given = os.environ if environment is None else environment
    values: dict[str, float | str] = {}
    for entry in fields(Settings):
        name = PREFIX + entry.name.upper()
        text = given.get(name, "").strip()
        if not text:
            continue
        if isinstance(entry.default, str):
            values[entry.name] = text
            continue
        least, most = entry.metadata["least"], entry.metadata["most"]
        kind, words = (int, "a whole number") if isinstance(entry.default, int) else (float, "a number")
        try:
            value = kind(text)
        except ValueError:
            raise SettingsError(f"{name} must be {words}, got {text!r}") from None
        if not least <= value <= most:
            raise SettingsError(f"{name} must be between {least} and {most}, got {text}")
        values[entry.name] = value
    return Settings(**values)  # type: ignore[arg-type]
