"""A server's answer instead of our own."""

from __future__ import annotations

import http.client
import json
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from app.commands.terminal import RefusedError, fault
from models.progress import Incumbent

__all__ = ["ask"]

M = TypeVar("M", bound=BaseModel)


def ask(url: str, path: str, body: BaseModel, answer: type[M], seconds: float, hear: Callable[[Incumbent], None] | None = None) -> M:
    """Ask a server instead of planning here. `hear` is called with every better plan on the way; the server may be silent for so many seconds."""
    if not url.startswith(("http://", "https://")):
        raise RefusedError(f"--url must start with http:// or https://, got {url!r}")
    headers = {"Content-Type": "application/json", "Accept": "text/event-stream" if hear else "application/json"}
    if key := os.environ.get("WATERSMEET_API_KEY", "").strip():
        headers["X-API-Key"] = key
    if parent := os.environ.get("TRACEPARENT", "").strip():
        headers["traceparent"] = parent  # whoever started us traces what it does
    request = urllib.request.Request(url.rstrip("/") + path, data=body.model_dump_json().encode(), headers=headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=seconds) as response:
            streamed = response.headers.get_content_type() == "text/event-stream" and hear
            return answer.model_validate_json(_last_event(url, response, hear) if streamed and hear else response.read())
    except urllib.error.HTTPError as failure:
        raise _refused_there(url, failure.code, failure.read()) from None
    except ValidationError:
        raise RefusedError(f"{url}: the answer is no {answer.__name__.lower()}: is this a watersmeet server, of this version?") from None
    except (OSError, http.client.HTTPException) as failure:  # URLError and TimeoutError are OSErrors
        reason = getattr(failure, "reason", failure)
        said = f"no answer within {seconds:g} seconds" if isinstance(reason, TimeoutError) else str(reason) or type(reason).__name__
        raise RefusedError(f"{url}: {said}") from None


def _last_event(url: str, lines: Iterable[bytes], hear: Callable[[Incumbent], None]) -> bytes:
    """The answer at the end of a stream of events."""
    event = b""
    for line in lines:
        name, _, value = line.strip().partition(b": ")
        if name == b"event":
            event = value
        elif name == b"data" and event == b"incumbent":
            hear(Incumbent.model_validate_json(value))
        elif name == b"data" and event == b"answer":
            return value
        elif name == b"data" and event == b"problem":
            raise _refused_there(url, 500, value)
    raise RefusedError(f"{url}: the server closed the connection before it answered")


def _refused_there(url: str, status: int, body: bytes) -> RefusedError:
    """What a server said instead of an answer."""
    try:
        problem = json.loads(body.decode(errors="replace"))
        faults = [fault(error["pointer"], error["detail"]) for error in problem.get("errors", [])]
        return RefusedError(f"{url}: {problem.get('title')}: {problem.get('detail')}", *faults)
    except (ValueError, KeyError, AttributeError, TypeError):
        return RefusedError(f"{url}: HTTP {status}")
