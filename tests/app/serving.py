"""Running services for the tests: real sockets, real worker processes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from app.service.api import create_app
from app.service.pool import Pool
from app.service.protocol import Protocol
from app.service.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "openapi" / "examples").glob("*.json"))
PATIENCE = 60.0  # seconds for something that must happen; it never takes that long


def until(happened: Callable[[], bool], what: str) -> None:
    """Wait until it happened."""
    end = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < end, f"waited in vain until {what}"
        time.sleep(0.01)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(settings: Settings, module: str = "app.service.worker") -> Iterator[tuple[httpx.Client, Pool]]:
    """A service in a thread of this process, ready, with a client for it; `module` is what its workers run."""
    pool = Pool(settings, module)
    server = uvicorn.Server(uvicorn.Config(create_app(settings, pool), port=free_port(), http=Protocol, ws="none", log_config=None, access_log=False))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        until(lambda: server.started and pool.ready, "the service was ready")
        with httpx.Client(base_url=f"http://127.0.0.1:{server.config.port}", timeout=PATIENCE) as client:
            yield client, pool
    finally:
        server.should_exit = True
        thread.join()


@contextmanager
def served(**environment: str) -> Iterator[httpx.Client]:
    """A service as a process of its own, as `watersmeet serve` runs it, ready."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "app", "serve", "--port", str(port)], cwd=ROOT, env={**os.environ, **environment}, stderr=subprocess.DEVNULL
    )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE) as client:
            until(lambda: answers(client), "the service was ready")
            yield client
    finally:
        process.terminate()
        process.wait()


def answers(client: httpx.Client) -> bool:
    """Whether the service is up and ready."""
    try:
        return client.get("/readyz").status_code == 200
    except httpx.TransportError:
        return False


def post(client: httpx.Client, path: str, body: bytes | dict[str, Any], **headers: str) -> httpx.Response:
    """POST a JSON body."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return client.post(path, content=content, headers={"Content-Type": "application/json", **headers})


def example(name: str = "auction") -> dict[str, Any]:
    """A request of openapi/examples."""
    loaded: dict[str, Any] = json.loads((ROOT / "openapi" / "examples" / f"{name}.json").read_text("utf-8"))
    return loaded


def check_problem(response: httpx.Response, status: int | None = None) -> dict[str, Any]:
    """The problem that the response is, with every field that RFC 9457 and the contract ask for."""
    assert status is None or response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = response.json()
    assert set(problem) == {"type", "title", "status", "detail", "errors"}
    assert problem["type"] == "about:blank" and problem["title"] and problem["detail"]
    assert problem["status"] == response.status_code
    for error in problem["errors"]:
        assert set(error) == {"pointer", "detail"} and error["detail"]
        assert error["pointer"] == "" or error["pointer"].startswith("/")
    return problem
