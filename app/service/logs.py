"""Logs: one JSON object per line on standard error."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

__all__ = ["set_up_logging"]

_STANDARD = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime", "color_message"})
_ENCODER = json.JSONEncoder(default=str)  # `json.dumps` would make one for every line


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        line.update((key, value) for key, value in vars(record).items() if key not in _STANDARD)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return _ENCODER.encode(line)


def set_up_logging() -> None:
    """Send every logger's records to standard error, replacing what was set up before."""
    # A line names its logger and its event: neither the place in the code nor the thread, which take as long to find as the line to write.
    logging._srcfile = None  # as logging's documentation has it
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
