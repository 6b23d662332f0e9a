"""`watersmeet serve`: the service under uvicorn."""

from __future__ import annotations

import math
import socket
import sys

import uvicorn

from app.service.api import create_app
from app.service.logs import set_up_logging
from app.service.protocol import Protocol
from app.service.settings import SettingsError, settings_from

__all__ = ["serve"]


def serve(host: str = "127.0.0.1", port: int = 8080) -> None:
    """Serve until told to stop. Running solves then have `shutdown_seconds` to end; the workers end with the service."""
    try:
        settings = settings_from()
        _check_address(host, port)
    except (SettingsError, OSError) as wrong:
        sys.stderr.write(f"{wrong}\n")
        raise SystemExit(2) from None
    set_up_logging()
    uvicorn.run(
        create_app(settings),
        host=host,
        port=port,
        log_config=None,
        access_log=False,
        http=Protocol,
        ws="none",
        server_header=False,
        timeout_graceful_shutdown=math.ceil(settings.shutdown_seconds),
    )


def _check_address(host: str, port: int) -> None:
    """Raise OSError, naming the address, where it cannot be listened on: uvicorn would say so among its logs, after all workers have started."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the service does: connections of a run before do not matter
        try:
            probe.bind((host, port))
        except OSError as error:
            raise OSError(f"cannot listen on {host}:{port}: {error.strerror}") from None
