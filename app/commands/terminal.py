"""What commands share towards whoever runs them: exit codes, the two outputs, and refusals."""

from __future__ import annotations

import io
import sys

__all__ = ["BAD_INPUT", "DONE", "INTERRUPTED", "NO", "RefusedError", "fault", "put", "say"]

DONE, NO, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130


class RefusedError(Exception):
    """Bad input: the lines say what is wrong."""

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


def say(*lines: str) -> None:
    """To a person: standard error."""
    sys.stderr.write("\n".join(lines) + "\n")


def put(text: str) -> None:
    """The answer: standard output. Signs that its encoding lacks are written as \\u22c8, which JSON reads as the sign and a person can guess."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.stdout.write(text + "\n")


def fault(where: str, what: str) -> str:
    """One line of a refusal: a pointer into the document, where there is one, and what is wrong there."""
    return f"  {where}: {what}" if where else f"  {what}"
